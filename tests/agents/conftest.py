"""A machine for agents' configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.agents.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "ada").mkdir()
    (tmp_path / "project").mkdir()
    return Machine(
        home=str(tmp_path / "ada"),
        project=str(tmp_path / "project"),
        platform="linux",
        variables={},
        command=("/opt/re prieve/bin/reprieve",),
    )
