"""Installing into awkward configurations and removing again leaves everything else byte for byte as it was."""

from __future__ import annotations

import itertools
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from reprieve.agents import foreign, hookfile, jsonc, registry
from reprieve.agents.foreign import Change
from reprieve.agents.machine import Machine
from reprieve.agents.protect import found_on, left_behind, protect_plan, unprotect_plan
from reprieve.errors import Conflict, Misconfigured, Usage

from .recorded import NAMES

# Agents whose hooks are in a JSON file, with one event that they all have in their own spelling.
JSON_FILES = {
    "claude-code": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse",
    "windsurf": "pre_run_command", "crush": "PreToolUse", "openhands": "PreToolUse", "copilot": "preToolUse",
    "vscode": "preToolUse",
}  # fmt: skip
OWN_FILES = ("opencode", "cline", "goose", "copilot")


@pytest.fixture
def records(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "agents")


def path_of(agent: str, machine: Machine, scope: str = "user") -> Path:
    targets = registry.load(agent).targets(machine, scope)
    return Path(targets[-1].path)


def install(agent: str, machine: Machine, records: str, scope: str = "user") -> list[Change]:
    plan = protect_plan([agent], scope, machine)
    for change in plan:
        foreign.apply(change, records=records)
    return plan


def remove(agent: str, machine: Machine, records: str, scope: str | None = None) -> list[Change]:
    plan = unprotect_plan([agent], machine, records=records, scope=scope)
    for change in plan:
        foreign.apply(change, records=records)
    return plan


BIG = json.dumps({"projects": {f"/p/{n}": ["x" * 50, n, None, {"ü": 1.5e3}] for n in range(10_000)}}, indent=1)


def awkward(event: str) -> dict[str, bytes | None]:
    """Configurations that people have."""
    theirs = '{"command": "./mine.sh", "matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}'
    return {
        "absent": None,
        "empty": b"",
        "blank": b" \n\n",
        "empty object": b"{}",
        "empty object over lines": b"{\n}\n",
        "one line": b'{"theme": "dark", "n": [1, 2]}',
        "compact": b'{"theme":"dark","hooks":{"Else":[]}}\n',
        "tabs": b'{\n\t"theme": "dark",\n\t"list": [\n\t\t1\n\t]\n}\n',
        "four blanks, no final newline": b'{\n    "theme": "dark"\n}',
        "windows line ends": b'{\r\n  "theme": "dark",\r\n  "hooks": {\r\n  }\r\n}\r\n',
        "byte order mark": b'\xef\xbb\xbf{\n  "theme": "dark"\n}\n',
        "comments": b'// mine\n{\n  // about it\n  "theme": "dark", // yes\n  /* x */\n  "x": 1 // last\n}\n// end\n',
        "trailing commas": f'{{\n  "hooks": {{\n    "{event}": [\n      {theirs}, // me\n    ],\n  }},\n}}\n'.encode(),
        "other hooks": f'{{"hooks": {{"{event}": [{theirs}], "Other": [{theirs}]}}, "z": 1}}'.encode(),
        "other hooks over lines": f'{{\n  "hooks": {{\n    "{event}": [\n      {theirs}\n    ]\n  }}\n}}\n'.encode(),
        "empty list": f'{{"hooks": {{"{event}": []}}}}'.encode(),
        "empty list with comment": f'{{"hooks": {{"{event}": [ // none yet\n]}}}}'.encode(),
        "hooks last, then comment": b'{\n  "hooks": {\n    /* none */\n  } // done\n}\n',
        "not ascii": '{"name": "Zoë ☃ 日本", "path": "C:\\\\x", "q": "\\u00e9\\""}\n'.encode(),
        "looks like ours": b'{"note": "reprieve hook is great", "hooks": {"X": [{"command": "reprieve-hook --all"}]}}',
        "huge": BIG.encode(),
        "repeated name": b'{"theme": 1, "theme": 2}',
    }  # fmt: skip


CASES = [*awkward("x")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("agent", JSON_FILES)
def test_install_then_remove_gives_the_same_bytes(agent: str, case: str, machine: Machine, records: str) -> None:
    path = path_of(agent, machine)
    before = awkward(JSON_FILES[agent])[case]
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
        path.chmod(0o640)
    install(agent, machine, records)
    installed = path.read_bytes()
    assert hookfile.is_ours_anywhere(installed.decode(), "copilot" if agent == "vscode" else agent, str(path))
    assert [change for change in protect_plan([agent], "user", machine) if change.is_needed] == []
    if before is not None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    remove(agent, machine, records)
    if before is None:
        assert not path.exists()
        assert os.listdir(machine.home) == []
    else:
        assert path.read_bytes() == before
    assert os.listdir(records) == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("agent", JSON_FILES)
def test_what_the_person_changes_in_between_survives(agent: str, case: str, machine: Machine, records: str) -> None:
    """Then the bytes can't be put back from the record; only our entries go, and the rest reads as it did."""
    path = path_of(agent, machine)
    before = awkward(JSON_FILES[agent])[case]
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
    install(agent, machine, records)
    text = path.read_bytes().decode()
    start = text.index("{") + 1
    path.write_bytes((text[:start] + '"added": true, /* by hand */' + text[start:]).encode())
    remove(agent, machine, records)
    expected: Any = {}
    if before is not None and before.strip():
        expected = jsonc.parse(before.decode(), inside="hooks").value()
    elif agent in ("cursor", "copilot", "vscode"):
        expected = {"version": 1}  # without it the agent would not read what the person added
    assert jsonc.parse(path.read_bytes().decode(), inside="hooks").value() == {"added": True, **expected}
    assert "by hand" in path.read_text("utf-8")


@pytest.mark.parametrize("agent", JSON_FILES)
def test_an_older_entry_of_ours_is_brought_up_to_date_in_place(agent: str, machine: Machine, records: str) -> None:
    """No second entry, and the person's stay where they are."""
    path = path_of(agent, machine)
    install(agent, machine, records)
    document = json.loads(path.read_text())
    event = JSON_FILES[agent]
    mine = {"command": "./mine.sh"}
    document["hooks"][event] = [mine, *document["hooks"][event], *document["hooks"][event]]
    document["hooks"]["Gone"] = document["hooks"][event][1:2]
    old = json.dumps(document, indent=2).replace("'/opt/re prieve/bin/reprieve'", "/usr/local/bin/reprieve")
    path.write_text(old)
    install(agent, machine, records)
    now = json.loads(path.read_text())
    assert now["hooks"][event][0] == mine
    assert len(now["hooks"][event]) == 2
    assert "/opt/re prieve/" in json.dumps(now["hooks"][event][1])
    assert now["hooks"].get("Gone", []) == []


def test_our_handler_in_a_group_of_the_persons_goes_alone(machine: Machine, records: str) -> None:
    path = path_of("claude-code", machine)
    path.parent.mkdir()
    group = (
        '{"matcher": "Bash", "hooks": [{"type": "command", "command": "a"}, '
        '{"type": "command", "command": "reprieve hook claude-code PreToolUse"}, {"type": "command", "command": "b"}]}'
    )
    path.write_text(f'{{"hooks": {{"PreToolUse": [{group}]}}}}')
    install("claude-code", machine, records)
    groups = json.loads(path.read_text())["hooks"]["PreToolUse"]
    assert [group["matcher"] for group in groups] == ["Bash", "*"]
    remove("claude-code", machine, records)
    assert [h["command"] for h in json.loads(path.read_text())["hooks"]["PreToolUse"][0]["hooks"]] == ["a", "b"]


@pytest.mark.parametrize("line", ["notify-send done && reprieve hook {} {}", "mylog reprieve hook {} {}; my-linter"])
@pytest.mark.parametrize("agent", JSON_FILES)
def test_a_line_of_the_persons_that_calls_us_stays_theirs(
    agent: str, line: str, machine: Machine, records: str
) -> None:
    path = path_of(agent, machine)
    event = JSON_FILES[agent]
    mine = line.format("copilot" if agent == "vscode" else agent, event)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 1, "hooks": {event: [{"command": mine, "hooks": [{"command": mine}]}]}}))
    before = path.read_bytes()
    (change,) = install(agent, machine, records)
    assert any(mine in note for note in change.notes)
    entries = json.loads(path.read_text())["hooks"][event]
    assert entries[0] == {"command": mine, "hooks": [{"command": mine}]}
    assert len(entries) == 2
    assert any(mine in note for note in left_behind([agent], machine, records=records))
    remove(agent, machine, records)
    assert path.read_bytes() == before
    install(agent, machine, records)
    remove(agent, machine, "/nonexistent")
    assert path.read_bytes() == before


def test_our_line_is_known_again_whichever_path_leads_to_us(machine: Machine) -> None:
    for command in (("reprieve",), ("/opt/it's (new)/reprieve",), ("/usr/bin/python3", "-m", "reprieve")):
        line = machine.replace(command=command).shell_command("hook", "cursor", "stop")
        assert hookfile.calls_us(line, "cursor")
        assert hookfile.calls_us(f"{line} || true", "cursor")
        assert not hookfile.calls_us(line, "codex")
        for mine in (
            f"{line}; x",
            f"x && {line}",
            f"{line}|x",
            f"A=1 {line}",
            f"time {line}",
            f"{line} || x",
            "hook x",
        ):
            assert not hookfile.calls_us(mine)
            assert hookfile.mentions_us(mine) is (mine != "hook x")
    windows = machine.replace(platform="win32", command=("C:\\Program Files (x86)\\reprieve.exe",))
    assert hookfile.calls_us("& " + windows.shell_command("hook", "copilot", "preToolUse") + "; exit 0", "copilot")
    assert hookfile.calls_us("C:\\tools\\Reprieve.cmd hook copilot preToolUse", "copilot")


BROKEN = {
    "broken": b'{"hooks": ',
    "two documents": b"{} {}",
    "single quotes": b"{'a': 1}",
    "merge conflict": b'{\n<<<<<<< HEAD\n  "a": 1\n=======\n  "a": 2\n>>>>>>> x\n}\n',
    "list at the top": b"[]",
    "text at the top": b'"hooks"',
    "hooks is a list": b'{"hooks": []}',
    "hooks is text": b'{"hooks": "none"}',
    "hooks is null": b'{"hooks": null}',
    "event is an object": b'{"hooks": {"PreToolUse": {}, "preToolUse": {}}}',
    "not utf-8": b'{"a": "\xff"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "too deep": b"[" * 100_000,
    "unfinished string": b'{"a": "' + b"\\" * 999 + b'"}',
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("agent", JSON_FILES)
def test_a_file_that_can_t_be_read_is_left_alone(agent: str, case: str, machine: Machine, records: str) -> None:
    path = path_of(agent, machine)
    path.parent.mkdir(parents=True)
    path.write_bytes(BROKEN[case])
    (change,) = protect_plan([agent], "user", machine)
    assert change.problem is not None
    assert change.problem.exit_code == 3
    assert change.problem.hints
    with pytest.raises(Misconfigured):
        foreign.apply(change, records=records)
    assert remove(agent, machine, records) == []
    assert path.read_bytes() == BROKEN[case]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("agent", NAMES)
def test_a_read_only_file_is_refused(agent: str, machine: Machine, records: str) -> None:
    plan = install(agent, machine, records)
    for change in plan:
        os.chmod(change.path, 0o444)
        Path(change.path).read_bytes()
    newer = machine.replace(command=("/new/reprieve",))
    again = protect_plan([agent], "user", newer)
    assert all(change.problem is not None and "read-only" in change.problem.message for change in again)
    gone = unprotect_plan([agent], machine, records=records)
    assert len(gone) == len(plan)
    assert all(change.problem is not None for change in gone)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("agent", NAMES)
def test_a_file_of_another_user_is_refused(agent: str, machine: Machine, records: str) -> None:
    for target in registry.load(agent).targets(machine, "user"):
        Path(target.path).parent.mkdir(parents=True, exist_ok=True)
        Path(target.path).write_text("{}" if agent in JSON_FILES else "")
        os.chown(target.path, 12345, 12345)
    plan = protect_plan([agent], "user", machine)
    assert plan
    for change in plan:
        if agent == "cline":
            assert change.path.startswith(machine.in_home(".cline"))  # its place is taken: the other folder
        else:
            assert change.problem is not None
            assert "12345" in change.problem.message


@pytest.mark.parametrize("agent", JSON_FILES)
def test_a_linked_file_is_changed_where_it_really_is_and_that_is_said(
    agent: str, machine: Machine, records: str, tmp_path: Path
) -> None:
    """Dotfiles are often links into a repository; the link stays a link."""
    path = path_of(agent, machine)
    path.parent.mkdir(parents=True)
    real = tmp_path / "dotfiles" / "file.json"
    real.parent.mkdir()
    real.write_text('{"theme": 1}\n')
    path.symlink_to(real)
    (change,) = install(agent, machine, records)
    assert any("link" in note and str(real) in note for note in change.notes)
    assert path.is_symlink()
    assert hookfile.is_ours_anywhere(real.read_text(), "copilot" if agent == "vscode" else agent, "x")
    remove(agent, machine, records)
    assert path.is_symlink()
    assert real.read_text() == '{"theme": 1}\n'


def test_a_link_to_nowhere_is_refused(machine: Machine, records: str, tmp_path: Path) -> None:
    path = path_of("cursor", machine)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "no such folder" / "hooks.json")
    (change,) = protect_plan(["cursor"], "user", machine)
    assert change.problem is not None


def test_a_folder_in_the_place_of_the_file_is_refused(machine: Machine) -> None:
    path_of("cursor", machine).mkdir(parents=True)
    (change,) = protect_plan(["cursor"], "user", machine)
    assert change.problem is not None


def test_a_hard_linked_file_is_changed_and_that_is_said(machine: Machine, records: str) -> None:
    path = path_of("cursor", machine)
    path.parent.mkdir()
    path.write_text("{}")
    os.link(path, path.parent / "other.json")
    (change,) = install("cursor", machine, records)
    assert any("hard link" in note for note in change.notes)


@pytest.mark.parametrize("agent", NAMES)
def test_both_scopes_live_side_by_side_and_go_one_by_one(agent: str, machine: Machine, records: str) -> None:
    for scope in ("user", "project"):
        install(agent, machine, records, scope)
    remove(agent, machine, records, "project")
    assert os.listdir(machine.project) == []
    assert os.listdir(machine.home) != []
    assert all(not change.is_needed for change in protect_plan([agent], "user", machine))
    remove(agent, machine, records)
    assert os.listdir(machine.home) == []


@pytest.mark.parametrize("agent", NAMES)
def test_installing_twice_changes_nothing_and_removing_twice_neither(
    agent: str, machine: Machine, records: str
) -> None:
    first = install(agent, machine, records)
    state = {change.path: Path(change.path).read_bytes() for change in first}
    again = install(agent, machine, records)
    assert not any(change.is_needed for change in again)
    assert {change.path: Path(change.path).read_bytes() for change in again} == state
    assert remove(agent, machine, records)
    assert remove(agent, machine, records) == []


@pytest.mark.parametrize("agent", NAMES)
def test_without_a_record_our_entries_still_go(agent: str, machine: Machine, records: str, tmp_path: Path) -> None:
    """A home copied to another machine has our hooks and none of our records."""
    install(agent, machine, records)
    remove(agent, machine, str(tmp_path / "other state"))
    for change in protect_plan([agent], "user", machine):
        assert change.old is None or "reprieve" not in change.old


@pytest.mark.parametrize("agent", NAMES)
def test_the_change_is_shown_as_a_diff_and_says_what_is_left_to_do(agent: str, machine: Machine) -> None:
    plan = protect_plan([agent], "user", machine)
    assert all("+" in change.diff() and change.path in change.diff() for change in plan)
    assert not any(os.path.exists(change.path) for change in plan)
    todo = registry.load(agent).left_to_do(machine, "user")
    assert plan[0].notes == tuple(todo)
    if agent in ("codex", "cursor", "opencode"):
        assert todo


def test_the_installed_command_runs_in_a_shell_and_names_agent_and_event(machine: Machine) -> None:
    import shlex

    for agent, event in JSON_FILES.items():
        name = "copilot" if agent == "vscode" else agent
        wanted = registry.load(name).wanted(machine, "/home/ada/hooks.json")  # type: ignore[attr-defined]
        entry = wanted[event]
        handler = entry["hooks"][0] if "hooks" in entry else entry
        words = shlex.split(handler.get("command") or handler["bash"])
        assert words[:4] == ["/opt/re prieve/bin/reprieve", "hook", name, event] or (
            words[:2] == ["/bin/sh", "-c"] and words[3:] == ["/opt/re prieve/bin/reprieve", "hook", name, event]
        )


def test_copilots_command_can_t_fail_but_before_a_call(machine: Machine) -> None:
    for event, entry in registry.load("copilot").wanted(machine, "/x").items():  # type: ignore[attr-defined]
        assert entry["bash"].endswith("|| true") is (event != "preToolUse")
        assert entry["powershell"].endswith("exit 0")


def test_geminis_limits_are_milliseconds_and_the_others_seconds(machine: Machine) -> None:
    gemini = registry.load("gemini").wanted(machine, "/x")["BeforeTool"]["hooks"][0]  # type: ignore[attr-defined]
    claude = registry.load("claude-code").wanted(machine, "/x")["PreToolUse"]["hooks"][0]  # type: ignore[attr-defined]
    assert (gemini["timeout"], claude["timeout"]) == (60_000, 60)


def test_copilot_and_vscode_share_one_file(machine: Machine) -> None:
    plan = protect_plan(["copilot", "vscode"], "user", machine)
    assert len(plan) == 1
    assert any("VS Code" in note and "preview" in note for note in plan[0].notes)


@pytest.mark.parametrize("agent", OWN_FILES)
def test_a_file_of_our_name_that_is_not_ours_is_left_alone(agent: str, machine: Machine, records: str) -> None:
    for target in registry.load(agent).targets(machine, "user"):
        Path(target.path).parent.mkdir(parents=True, exist_ok=True)
        Path(target.path).write_text("export const mine = 1\n")
    if agent == "cline":
        # Its place is taken: ours goes to the other folder.
        plan = install(agent, machine, records)
        assert all(".cline" in change.path and change.problem is None for change in plan)
        for change in plan:
            Path(change.path).write_text("#!/bin/sh\n")
    plan = protect_plan([agent], "user", machine)
    assert all(change.problem is not None for change in plan)
    assert remove(agent, machine, records) == []


def test_clines_scripts_are_executable_and_run_us(machine: Machine, records: str, tmp_path: Path) -> None:
    import subprocess

    us = tmp_path / "bin with blank" / "reprieve"
    us.parent.mkdir()
    us.write_text('#!/bin/sh\necho "$@"; cat\n')
    us.chmod(0o755)
    machine = machine.replace(command=(str(us),))
    plan = install("cline", machine, records)
    script = next(change.path for change in plan if change.path.endswith("PreToolUse"))
    run = subprocess.run([script], input=b"{}", capture_output=True, check=True)
    assert run.stdout == b"hook cline PreToolUse\n{}"


TOML: dict[str, bytes] = {
    "plain": b'model = "x"\n\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "mine"\n',
    "no final newline": b'[[hooks.Stop]]\nhooks = [{ type = "command", command = "mine" }]',
    "same event": b'# c\n[[hooks.PreToolUse]]\nmatcher="x"\n[[hooks.PreToolUse.hooks]]\ntype="command"\ncommand="m"\n',
    "windows": b'[[hooks.Stop]]\r\nhooks = []\r\n[hooks.state."x:y"]\r\ntrusted_hash = "sha256:1"\r\n',
    "deep": b"[a.b.c]\nd = [1, 2, # c\n 3]\n[[hooks.Stop]]\nhooks = [] # none\n\n\n",
}


@pytest.mark.parametrize("case", TOML)
def test_codex_hooks_go_where_the_person_keeps_them(case: str, machine: Machine, records: str) -> None:
    """With hooks in config.toml and none in hooks.json, a hooks.json would make Codex warn."""
    path = Path(machine.home, ".codex", "config.toml")
    path.parent.mkdir()
    path.write_bytes(TOML[case])
    (change,) = install("codex", machine, records)
    assert change.path == str(path)
    assert path.read_bytes().startswith(TOML[case])
    assert not any(c.is_needed for c in protect_plan(["codex"], "user", machine))
    text = path.read_bytes()
    path.write_bytes(text + b"\n[later]\nx = 1\n")
    remove("codex", machine, records)
    assert path.read_bytes().replace(b"\n[later]\nx = 1\n", b"").rstrip() == TOML[case].rstrip()
    path.write_bytes(TOML[case])
    install("codex", machine, records)
    remove("codex", machine, records)
    assert path.read_bytes() == TOML[case]


def test_a_toml_file_that_can_t_take_our_tables_is_left_alone(machine: Machine, records: str) -> None:
    path = Path(machine.home, ".codex", "config.toml")
    path.parent.mkdir()
    path.write_text("hooks = { Stop = [], PreToolUse = [] }\n")
    (change,) = protect_plan(["codex"], "user", machine)
    assert change.problem is not None
    assert path.read_text() == "hooks = { Stop = [], PreToolUse = [] }\n"


def test_a_table_of_codex_between_our_markers_is_not_taken_along(machine: Machine, records: str) -> None:
    path = Path(machine.home, ".codex", "config.toml")
    path.parent.mkdir()
    path.write_bytes(TOML["plain"])
    install("codex", machine, records)
    text = path.read_text().replace("# <<< reprieve", '[hooks.state."x"]\ntrusted_hash = "1"\n# <<< reprieve')
    path.write_text(text)
    (change,) = unprotect_plan(["codex"], machine, records=records)
    assert change.problem is not None
    assert path.read_text() == text


def test_codex_gets_only_the_keys_that_it_knows(machine: Machine) -> None:
    """It rejects a hooks.json with any other name at the top."""
    (change,) = protect_plan(["codex"], "user", machine)
    assert change.new is not None
    assert list(json.loads(change.new)) == ["hooks"]


def test_a_file_that_changes_between_plan_and_writing_is_left_alone(machine: Machine, records: str) -> None:
    """Agents rewrite their own settings while they run."""
    (change,) = protect_plan(["claude-code"], "user", machine)
    path = Path(change.path)
    path.parent.mkdir()
    path.write_text('{"new": 1}')
    with pytest.raises(Conflict):
        foreign.apply(change, records=records)
    assert path.read_text() == '{"new": 1}'


def test_the_record_of_an_entry_removed_by_hand_does_not_bring_old_text_back(machine: Machine, records: str) -> None:
    path = path_of("cursor", machine)
    path.parent.mkdir()
    path.write_text('{"version": 1, "old": true}')
    install("cursor", machine, records)
    path.write_text('{"version": 1, "new": true}')
    install("cursor", machine, records)
    remove("cursor", machine, records)
    assert path.read_text() == '{"version": 1, "new": true}'


def test_records_and_backups_are_for_the_owner_only(machine: Machine, records: str) -> None:
    """Settings hold keys, and the record holds a copy of them."""
    path = path_of("gemini", machine)
    path.parent.mkdir()
    path.write_text('{"apiKey": "secret"}')
    path.chmod(0o600)
    install("gemini", machine, records)
    assert stat.S_IMODE(os.stat(records).st_mode) == 0o700
    assert [stat.S_IMODE(os.stat(Path(records, name)).st_mode) for name in os.listdir(records)] == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (record,) = foreign.all_records(records)
    assert (record.agent, record.before) == ("gemini", '{"apiKey": "secret"}')


def test_folders_that_somebody_else_uses_by_now_stay(machine: Machine, records: str) -> None:
    install("cursor", machine, records)
    mine = Path(machine.home, ".cursor", "rules.md")
    mine.write_text("x")
    remove("cursor", machine, records)
    assert mine.exists()
    assert os.listdir(mine.parent) == ["rules.md"]


@pytest.mark.parametrize("order", list(itertools.permutations(("opencode", "crush", "goose"))), ids="-".join)
def test_a_folder_that_files_of_several_agents_were_put_into_goes_with_the_last(
    machine: Machine, records: str, order: tuple[str, ...]
) -> None:
    for agent in ("opencode", "crush", "goose"):
        install(agent, machine, records)
    assert Path(machine.home, ".config").is_dir()
    install(order[1], machine, records)
    for agent in order:
        remove(agent, machine, records)
    assert os.listdir(machine.home) == []
    assert foreign.all_records(records) == []


def test_a_folder_that_our_file_was_put_into_and_a_persons_was_too_stays(machine: Machine, records: str) -> None:
    install("opencode", machine, records)
    install("crush", machine, records)
    mine = Path(machine.home, ".config", "mine")
    mine.write_text("x")
    remove("opencode", machine, records)
    remove("crush", machine, records)
    assert os.listdir(mine.parent) == ["mine"]


def test_agents_are_found_by_their_folder_or_program(machine: Machine, tmp_path: Path) -> None:
    assert found_on(machine) == []
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    Path(machine.home, ".cursor").mkdir()
    Path(machine.home, ".config", "crush").mkdir(parents=True)
    there = machine.replace(variables={"PATH": str(program.parent)})
    assert found_on(there) == ["codex", "cursor", "crush"]
    assert {change.agent for change in protect_plan([], "user", there)} == {"codex", "cursor", "crush"}


def test_variables_that_move_an_agents_folder_are_followed(machine: Machine) -> None:
    moved = machine.replace(variables={
        "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "COPILOT_HOME": "/p", "XDG_CONFIG_HOME": "/g", "CLINE_DIR": "/l",
    })  # fmt: skip
    paths = {name: registry.load(name).targets(moved, "user")[-1].path for name in NAMES}
    assert paths["claude-code"] == "/c/settings.json"
    assert paths["codex"] == "/x/hooks.json"
    assert paths["copilot"] == paths["vscode"] == "/p/hooks/reprieve.json"
    assert paths["opencode"] == "/g/opencode/plugins/reprieve.js"
    assert paths["crush"] == "/g/crush/crush.json"


def test_an_unknown_name_or_scope_is_a_usage_error(machine: Machine) -> None:
    with pytest.raises(Usage):
        protect_plan(["emacs"], "user", machine)
    with pytest.raises(Usage):
        protect_plan(["cursor"], "galaxy", machine)
