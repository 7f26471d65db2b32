"""A workspace whose reprieve.toml a person accepted."""

from __future__ import annotations

from pathlib import Path

from reprieve.app.accepting import accept
from reprieve.app.finding import open_workspace


def write_accepted(project: Path, text: str) -> None:
    """Write the workspace's reprieve.toml, and accept as a person what it weakens; the workspace is made if need be."""
    (project / "reprieve.toml").write_text(text)
    accept_settings(project)


def accept_settings(project: Path) -> None:
    """Accept as a person what the workspace's reprieve.toml weakens."""
    with open_workspace(str(project), create=True) as ws:
        assert ws.config.weaker
        accept(ws, ws.config.weaker)
