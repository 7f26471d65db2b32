"""`protect`, `unprotect`, and `doctor` about agents, as a person meets them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from support import Cli

MINE = '{\n  // mine\n  "model": "x",\n}\n'


def test_a_dry_run_shows_the_change_and_writes_nothing(cli: Cli, settings: Path, home: Path) -> None:
    out = cli("protect", "--dry-run").out
    assert "hook claude-code PreToolUse" in out
    assert settings.read_text() == MINE
    assert not home.exists()


def test_those_found_are_protected_and_the_first_checkpoint_is_taken(cli: Cli, settings: Path, home: Path) -> None:
    answer = cli("protect", "--json").json
    assert [change["agent"] for change in answer["changes"]] == ["claude-code"]
    assert answer["changes"][0]["change"] == "install"
    assert answer["checkpoint"]["files"] > 5
    assert "// mine" in settings.read_text()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert len(cli("log", "--json").json["entries"]) == 1
    again = cli("protect", "--json").json
    assert again["changes"][0]["change"] == "none"
    assert len(cli("log", "--json").json["entries"]) == 1


def test_WB15_a_file_that_is_not_json_is_refused_and_left_alone(cli: Cli, settings: Path) -> None:
    settings.write_text('{"model": "x"')
    done = cli("protect", check=False)
    assert done.code == 3
    assert settings.read_text() == '{"model": "x"'
    assert "settings.json" in done.err


def test_one_file_that_cannot_be_changed_does_not_stop_the_others(cli: Cli, settings: Path, user: Path) -> None:
    settings.write_text("[]")
    done = cli("protect", "claude-code", "gemini", check=False)
    assert done.code == 6
    assert "hook gemini" in (user / ".gemini" / "settings.json").read_text()
    assert settings.read_text() == "[]"


def test_nothing_found_says_how_to_go_on(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nobody").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("PATH", "/nonexistent")
    done = cli("protect", check=False)
    assert done.code == 3
    assert "reprieve run" in done.err


def test_an_unknown_agent_is_a_usage_error(cli: Cli, user: Path) -> None:
    done = cli("protect", "claude", check=False)
    assert done.code == 2
    assert "claude-code" in done.err


def test_what_is_left_to_the_person_is_said(cli: Cli, user: Path) -> None:
    assert "open /hooks in Codex" in cli("protect", "codex").out
    assert any("/hooks" in note for note in cli("protect", "codex", "--json").json["left_to_do"])


def test_in_the_home_directory_hooks_are_installed_without_a_checkpoint_of_it(
    cli: Cli, user: Path, settings: Path
) -> None:
    out = cli("protect", cwd=user).out
    assert "No checkpoint yet" in out
    assert "hook claude-code" in settings.read_text()


def test_a_project_scope_stays_in_the_project(cli: Cli, project: Path, settings: Path) -> None:
    cli("protect", "claude-code", "--scope", "project")
    local = project / ".claude" / "settings.local.json"
    assert "hook claude-code" in local.read_text()
    assert settings.read_text() == MINE
    cli("unprotect", "claude-code")
    assert not local.exists()


def findings(cli: Cli, agent: str = "claude-code") -> list[tuple[str, str]]:
    answer = cli("doctor", "--json", check=False).json
    return [(f["level"], f["text"]) for f in answer["findings"] if f["subject"] == agent]


def test_doctor_proves_that_the_installed_hook_answers(cli: Cli, settings: Path, project: Path) -> None:
    assert "not protected" in findings(cli)[0][1]
    cli("protect")
    ((level, text),) = findings(cli)
    assert level == "ok"
    assert "answers; no step of it was recorded here yet" in text
    payload = {"session_id": "s", "cwd": str(project), "hook_event_name": "UserPromptSubmit", "prompt": "go"}
    cli("hook", "claude-code", "UserPromptSubmit", input=json.dumps(payload))
    assert "its last step here was recorded" in findings(cli)[0][1]


def test_doctor_says_when_the_hook_is_switched_off_gone_or_disabled(cli: Cli, settings: Path, tmp_path: Path) -> None:
    cli("protect")
    good = settings.read_text()
    settings.write_text(good.replace('"model": "x"', '"model": "x", "disableAllHooks": true'))
    assert any(level == "bad" and "disableAllHooks" in text for level, text in findings(cli))
    program = json.loads(good.split('"command": ')[1].split("\n")[0].rstrip(","))
    settings.write_text(good.replace(program.split()[0], "/nonexistent/reprieve"))
    assert any(level == "bad" and "does not work" in text for level, text in findings(cli))
    settings.write_text(good)
    os.environ["REPRIEVE_DISABLED"] = "1"
    try:
        assert any(level == "bad" and "REPRIEVE_DISABLED" in text for level, text in findings(cli))
    finally:
        del os.environ["REPRIEVE_DISABLED"]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"matcher": "*"', '"matcher": "NotebookEdit"'),
        ('"type": "command"', '"type": "command", "async": true'),
        ('"timeout": 60', '"timeout": 0'),
    ],
)
def test_doctor_is_not_content_with_an_entry_that_keeps_calls_from_us(
    written: str, instead: str, cli: Cli, settings: Path
) -> None:
    cli("protect")
    head, event, tail = settings.read_text().partition('"PreToolUse"')
    settings.write_text(head + event + tail.replace(written, instead, 1))
    ((level, text),) = findings(cli)
    assert level == "warn"
    assert "the entry for PreToolUse" in text
    cli("protect")
    assert findings(cli)[0][0] == "ok"


def test_doctor_misses_one_of_several_files_of_ours(cli: Cli, user: Path) -> None:
    cli("protect", "goose")
    (user / ".agents" / "plugins" / "reprieve" / "hooks" / "hooks.json").unlink()
    ((level, text),) = findings(cli, "goose")
    assert level == "warn"
    assert "hooks.json' is gone" in text


OFF = '{"disableAllHooks": true}'
NO_HOOKS = '{"hooksConfig": {"enabled": false}}'
NOT_OURS = '{"hooksConfig": {"disabled": ["reprieve"]}}'
NO_PLUGIN = '{"disabledPlugins": ["reprieve"]}'


@pytest.mark.parametrize(
    ("agent", "place", "text"),
    [
        ("claude-code", "project/.claude/settings.json", OFF),
        ("claude-code", "project/.claude/settings.local.json", OFF),
        ("gemini", "project/.gemini/settings.json", NO_HOOKS),
        ("gemini", "project/.gemini/settings.json", NOT_OURS),
        ("gemini", "system.json", NO_HOOKS),
        ("openhands", "project/.openhands/hooks.json", '{"hooks": {}}'),
        ("goose", "project/.config/goose/settings.json", NO_PLUGIN),
        ("goose", "project/.config/goose/settings.local.json", NO_PLUGIN),
        ("goose", "user/.config/goose/settings.json", NO_PLUGIN),
    ],
)
def test_doctor_looks_at_every_file_in_which_hooks_can_be_switched_off(
    agent: str, place: str, text: str, cli: Cli, user: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the project can be written by the agent itself."""
    assert (project.name, user.name) == ("project", "user")
    path = user.parent / place
    monkeypatch.setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", str(user.parent / "system.json"))
    cli("protect", agent)
    assert findings(cli, agent)[0][0] == "ok"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    ((level, said),) = findings(cli, agent)
    assert level == "bad"
    assert str(path) in said


def test_the_strongest_file_decides_whether_hooks_run(cli: Cli, settings: Path, project: Path) -> None:
    cli("protect")
    settings.write_text(settings.read_text().replace('"model": "x"', '"model": "x", "disableAllHooks": true'))
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"disableAllHooks": false}')
    assert findings(cli)[0][0] == "ok"


def test_doctor_calls_the_hook_that_is_in_a_toml_file(cli: Cli, user: Path) -> None:
    config = user / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "mine"\n')
    cli("protect", "codex")
    ((level, text),) = findings(cli, "codex")
    assert (level, "answers" in text) == ("ok", True)
    config.write_text(config.read_text().replace("/bin/reprieve hook", "/nowhere/reprieve hook"))
    assert any(level == "bad" and "does not work" in text for level, text in findings(cli, "codex"))


def test_doctor_says_that_codex_does_not_trust_us_yet(cli: Cli, user: Path) -> None:
    cli("protect", "codex")
    answer = cli("doctor", "--json", check=False).json
    assert any(f["level"] == "bad" and "trust" in f["text"] for f in answer["findings"] if f["subject"] == "codex")
