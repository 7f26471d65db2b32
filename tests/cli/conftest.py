"""A person with a coding agent, for the commands that write to an agent's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

MINE = '{\n  // mine\n  "model": "x",\n}\n'


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with Claude Code in it."""
    home = tmp_path / "user"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text(MINE)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "CLINE_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def settings(user: Path) -> Path:
    return user / ".claude" / "settings.json"
