"""What the tests of the native functions stand on."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from reprieve.files import _native, _twin
from support.natives import (
    Root,
)


@pytest.fixture(params=[_native, _twin], ids=["c", "python"])
def n(request: pytest.FixtureRequest) -> ModuleType:
    """The implementation under test."""
    module: ModuleType = request.param
    return module


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    (tmp_path / "tree").mkdir()
    with Root(tmp_path / "tree") as r:
        yield r
    subprocess.run(["rm", "-rf", tmp_path / "tree"], check=True)  # shutil.rmtree recurses, and some are deep


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can reach, which tmp_path is not."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)
