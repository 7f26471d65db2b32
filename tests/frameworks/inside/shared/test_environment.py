"""What is tested here is this clone's code with the frameworks' own."""

from __future__ import annotations

import sys
from pathlib import Path

import agents
import reprieve

REPOSITORY = Path(__file__).resolve().parents[4]


def test_reprieve_is_the_clones_and_agents_is_the_sdk() -> None:
    """The other tests have a folder `agents`; it must not stand before the SDK of that name."""
    assert Path(reprieve.__file__).is_relative_to(REPOSITORY / "src")
    assert Path(agents.__file__).is_relative_to(sys.prefix)
