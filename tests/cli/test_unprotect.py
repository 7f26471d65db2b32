"""`unprotect`: no trace is left."""

from __future__ import annotations

import shlex
from pathlib import Path

from support import Cli


def test_unprotect_gives_back_the_same_bytes(cli: Cli, settings: Path) -> None:
    before = settings.read_bytes()
    cli("protect")
    assert cli("unprotect", "--dry-run").out.count("hook claude-code") > 5
    assert settings.read_bytes() != before
    cli("unprotect")
    assert settings.read_bytes() == before
    assert "no hook of ours" in cli("unprotect").out


def test_what_the_person_changed_since_stays(cli: Cli, settings: Path) -> None:
    cli("protect")
    settings.write_text(settings.read_text().replace('"x"', '"y"'))
    answer = cli("unprotect", "--json").json
    assert [change["change"] for change in answer["changes"]] == ["remove"]
    assert '"y"' in settings.read_text()
    assert "// mine" in settings.read_text()
    assert "hook claude-code" not in settings.read_text()


def test_hooks_of_other_projects_are_named_with_the_command_that_takes_them_out(
    cli: Cli, user: Path, project: Path, tmp_path: Path
) -> None:
    cli("protect", "claude-code", "goose", "--scope", "project")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    left = cli("unprotect", "-C", str(elsewhere), "--json").json["left_to_do"]
    assert cli("unprotect", "codex", "-C", str(elsewhere), "--json").json["left_to_do"] == []
    assert cli("unprotect", "--scope", "user", "-C", str(elsewhere), "--json").json["left_to_do"] == []
    assert {str(project / ".claude" / "settings.local.json")} <= {note.split("'")[1] for note in left}
    assert "Left to you: our hook is still in" in cli("unprotect", "-C", str(elsewhere)).out
    for note in left:
        cli(*shlex.split(note.partition("take it out with: ")[2])[1:])
    assert list(project.glob(".[ac]*")) == []
    assert cli("unprotect", "-C", str(elsewhere), "--json").json["left_to_do"] == []


def test_a_line_of_the_persons_that_calls_us_is_named(cli: Cli, settings: Path) -> None:
    mine = (
        '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep && reprieve hook claude-code Stop"}]}]}}'
    )
    settings.write_text(mine)
    assert "beep && reprieve hook" in cli("doctor", check=False).out
    assert "left alone: beep && reprieve hook" in cli("protect").out
    assert "left alone: beep && reprieve hook" in cli("unprotect").out
    assert settings.read_text() == mine
