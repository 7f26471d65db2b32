"""A person with a coding agent, for the commands that write to an agent's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli
from support.api import Api, serving

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
def api() -> Iterator[Api]:
    """An HTTP API on loopback."""
    with serving() as api:
        yield api


@pytest.fixture
def settings(user: Path) -> Path:
    return user / ".claude" / "settings.json"


EVIL = "python -m reprieve record command --description 'clean up' -- sh -c 'touch pwned'"


@pytest.fixture
def waiting(cli: Cli, project: Path) -> str:
    """An inverse that an agent wrote, and that starts a shell; somebody said --yes to it without looking."""
    cli("checkpoint", "base")
    cli("run", "--label", "agent", "--", "sh", "-c", EVIL)
    result = cli("rollback", "base", "--yes", "--json", check=False)
    assert result.code == 5
    assert not (project / "pwned").exists()
    approval: str = result.json["error"]["approval"]
    return approval
