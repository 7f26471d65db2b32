"""Savers to test: in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.frameworks.langgraph import ReprieveSaver

collect_ignore = ["inside"]  # run by test_inside.py, in environments of their own


@pytest.fixture(params=["memory", "disk"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReprieveSaver]:
    with ReprieveSaver(tmp_path / "state" if request.param == "disk" else None) as made:
        yield made


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[ReprieveSaver]:
    with ReprieveSaver(tmp_path / "state") as made:
        yield made
