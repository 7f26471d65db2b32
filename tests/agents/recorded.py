"""Recorded payloads: one file per event, in the order of a session, with what a reader has to make of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reprieve.agents import registry

FOLDER = Path(__file__).with_name("payloads")
# The recordings say that the project is here; whoever plays them against real files replaces it.
PROJECT = "/home/ada/project"
NAMES = registry.NAMES


def recordings(agent: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, {"argument", "payload", "expect"}) in order."""
    files = sorted((FOLDER / agent).glob("*.json"))
    assert files, f"no recorded payloads for {agent}"
    return [(file.stem, json.loads(file.read_text("utf-8"))) for file in files]


def every() -> list[tuple[str, str, dict[str, Any]]]:
    return [(agent, name, record) for agent in NAMES for name, record in recordings(agent)]
