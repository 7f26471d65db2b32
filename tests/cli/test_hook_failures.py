"""The hook when something is wrong: what it answers, and that it never gets in the way by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from reprieve.agents import registry
from reprieve.app import hooks
from reprieve.app.finding import open_workspace
from reprieve.cli.hooking import OverBudget, reply
from reprieve.errors import StoreFailed
from reprieve.model.hookevent import HookEvent
from reprieve.store.packs import LocalPacks
from support import Cli
from support.claude import Claude, open_steps
from support.settings import write_accepted


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


NAMES = registry.NAMES


def broken(event: HookEvent, **_: object) -> str:
    raise StoreFailed("the disk is full", hints=["reprieve prune"])


def crashing(event: HookEvent, **_: object) -> str:
    raise ZeroDivisionError("division by zero")


def test_a_step_that_cannot_be_protected_is_refused_with_the_reason(claude: Claude) -> None:
    claude.handle = broken
    said = claude.before("c1")
    assert said["permissionDecision"] == "deny"
    for part in ("Reprieve", "the disk is full", "Nothing ran", "Ask the user to run `reprieve doctor`"):
        assert part in said["permissionDecisionReason"]


@pytest.mark.parametrize("agent", NAMES)
def test_every_agent_hears_a_refusal_in_its_own_language_and_no_bug_of_ours_is_silent(
    agent: str, project: Path
) -> None:
    from agents.recorded import recordings

    record = next(r for _, r in recordings(agent) if r["expect"].get("command"))
    variables: Mapping[str, str] = {"CRUSH": "1"} if agent == "crush" else {}
    installed_as = "copilot" if agent == "vscode" else agent
    words = [installed_as, record["argument"]]
    out, err, code = reply(words, json.dumps(record["payload"]).encode(), variables, crashing)
    assert code == (2 if agent in ("windsurf", "goose", "crush", "openhands") and not out else 0)
    said = (out + err).decode()
    assert "this is a bug in Reprieve" in said
    assert "Ask the user" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("agent", NAMES)
@pytest.mark.parametrize("choice", ["deny", "ask", "allow"])
def test_no_agent_hears_how_to_switch_protection_off(
    agent: str, choice: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever went wrong, and whatever a person is told about it."""
    from agents.recorded import recordings

    def failing(event: HookEvent, **_: object) -> str:
        raise StoreFailed("the disk is full", hints=["reprieve prune", "reprieve config set hook.on_failure allow"])

    def slow(event: HookEvent, **_: object) -> str:
        raise OverBudget("it took longer than 1 s")

    monkeypatch.setenv("REPRIEVE_HOOK_ON_FAILURE", choice)
    variables: Mapping[str, str] = {"CRUSH": "1"} if agent == "crush" else {}
    installed_as = "copilot" if agent == "vscode" else agent
    for handle in (failing, slow, crashing):
        for _, record in recordings(agent):
            words = [installed_as, record["argument"]]
            out, err, _ = reply(words, json.dumps(record["payload"]).encode(), variables, handle)
            for way in ("REPRIEVE_DISABLED", "unprotect", "config set", "on_failure", "budget_s", "prune"):
                assert way.encode() not in out + err


@pytest.mark.parametrize(("choice", "decision"), [("allow", None), ("ask", "ask"), ("deny", "deny")])
def test_the_person_chooses_what_happens_without_a_checkpoint(
    claude: Claude, choice: str, decision: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRIEVE_HOOK_ON_FAILURE", choice)
    claude.handle = broken
    said = claude.before("c1")
    assert said.get("permissionDecision") == decision
    if choice == "allow":
        assert "not protected" in said["additionalContext"]
        assert b"not protected" in claude.err


def test_an_end_that_cannot_be_recorded_is_said_and_closed_later(claude: Claude, project: Path) -> None:
    claude.before("c1")
    claude.handle = broken
    assert "could not record" in claude.after("c1")["additionalContext"]
    claude.handle = None
    claude.send("Stop")
    assert open_steps(project) == []


def test_a_last_hook_that_fails_on_its_way_keeps_nobody_waiting(
    claude: Claude, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may go on after the answer: what was put and not committed holds a lock until it is let go of."""
    claude.prompt("begin")
    (project / "new.txt").write_text("new\n")

    def full(self: LocalPacks) -> None:
        raise StoreFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(LocalPacks, "flush", full)
        kept: list[object] = []  # else the garbage collector would close what nobody holds any more
        opened = LocalPacks.__init__
        patch.setattr(LocalPacks, "__init__", lambda self, *a, **k: kept.append(self) or opened(self, *a, **k))
        claude.handle = lambda event, **more: hooks.handle(event, **{**more, "is_last": True})
        assert "the disk is full" in claude.before("c1")["permissionDecisionReason"]
        assert kept
    with open_workspace(str(project)) as ws, ws.store.gc_lock(wait_s=0.5):
        pass


def test_over_its_time_the_hook_says_so(claude: Claude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_HOOK_BUDGET_S", "1")

    def slow(event: HookEvent, **_: object) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            time.sleep(0.01)
        return ""

    claude.handle = slow
    said = claude.before("c1")
    assert said["permissionDecision"] == "deny"
    assert "longer than 1 s" in said["permissionDecisionReason"]
    assert "it took longer than" in said["permissionDecisionReason"]
    assert issubclass(OverBudget, KeyboardInterrupt)  # so that a checkpoint keeps what it has read


def test_over_its_time_the_hook_answers_though_cleaning_up_takes_long(
    claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is interrupted keeps what it has read, and may wait for a lock that is never free."""
    monkeypatch.setenv("REPRIEVE_HOOK_BUDGET_S", "1")
    monkeypatch.setattr("reprieve.cli.hooking._LIMIT_S", 2)

    def slow(event: HookEvent, **_: object) -> str:
        try:
            time.sleep(60)
        finally:
            time.sleep(60)
        return ""

    claude.handle = slow
    began = time.monotonic()
    assert claude.before("c1")["permissionDecision"] == "deny"
    assert time.monotonic() - began < 30


def test_a_broken_configuration_is_named(claude: Claude, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("hook = [broken")
    assert "config.toml" in claude.before("c1")["permissionDecisionReason"]


def test_A9_the_home_directory_is_refused_not_copied(claude: Claude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(claude.project))
    said = claude.before("c1")
    assert said["permissionDecision"] == "deny"
    assert "home directory" in said["permissionDecisionReason"]


def test_a_folder_that_nobody_protected_yet_is_protected_from_the_repository_down(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "repo"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".git").mkdir()
    Claude(root / "deep" / "er").before("c1")
    with open_workspace(str(root)) as ws:
        assert ws.root == os.fsencode(root)


def test_switched_off_it_says_so_and_does_nothing(claude: Claude, home: Path) -> None:
    claude.env["REPRIEVE_DISABLED"] = "1"
    assert claude.before("c1") == {}
    assert b"REPRIEVE_DISABLED=1" in claude.err
    assert "no step is protected" in claude.prompt("go")["additionalContext"]
    assert not home.exists()


def test_WB17_a_gap_is_recorded_and_the_rest_is_captured(claude: Claude, project: Path, cli: Cli) -> None:
    """One thing that can't be captured: the hook goes on, the rest comes back, the gap is named."""
    os.mkfifo(project / "pipe")
    write_accepted(project, 'exclude = ["data.bin"]\n')
    assert claude.before("c1") == {}
    (project / "README.md").write_text("wrecked")
    claude.after("c1")
    cli("rollback", "call:c1", "--yes")
    assert (project / "README.md").read_text().startswith("# A project")
    assert "data.bin" in cli("status", check=False).out


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"tool_name": 1}', b"null", b"[" * 100_000])
@pytest.mark.parametrize(
    "words", [[], ["claude-code"], ["nobody", "PreToolUse"], ["codex", "PreToolUse", "more"], ["-x"]]
)
def test_whatever_comes_in_there_is_an_answer(data: bytes, words: list[str], project: Path, cli: Cli) -> None:
    """One that can't be read may be about a call, so it is refused."""
    out, err, code = reply(words, data, {"PATH": ""}, lambda event, **_: "")
    assert code == 0
    assert (b'"permissionDecision": "deny"' in out) is (data != b'{"tool_name": 1}')
    assert b"Traceback" not in err


def test_as_a_process_it_never_fails_by_usage(project: Path, home: Path) -> None:
    """Exit 2 blocks every call in most agents: an unknown option of an older entry must not."""
    for words in ([], ["--new-option"], ["claude-code", "PreToolUse", "x", "--y"], ["unknown"]):
        done = subprocess.run(
            [sys.executable, "-m", "reprieve", "hook", *words], cwd=project, input=b"{}", capture_output=True
        )
        assert done.returncode == 0, done.stderr
        assert not done.stdout


@pytest.mark.parametrize(
    ("mine", "arguments", "claudes_name", "claudes_arguments"),
    [
        ("bash", {"command": "make", "description": "build", "sessionId": "shell"}, "Bash", {"command": "make"}),
        ("edit", {"path": "f", "old_str": "a", "new_str": "b"}, "Edit", {"path": "f", "old_str": "a", "new_str": "b"}),
        ("edit", '{"path": "f", "old_str": "a"}', "Edit", {"file_path": "f", "old_string": "a"}),
        ("create", {"path": "f", "file_text": "b"}, "Write", {"path": "f", "file_text": "b"}),
        ("str_replace_editor", {"command": "create", "path": "f"}, "Edit", {"command": "create", "path": "f"}),
        ("apply_patch", {"patch": "*** Add File: f\n+x"}, "Edit", {"patch": "*** Add File: f\n+x"}),
        ("apply_patch", "*** Begin Patch", "Edit", "*** Begin Patch"),
        ("task", {"prompt": "x"}, "Agent", {"prompt": "x"}),
        ("server-tool", {"x": 1}, "server-tool", {"x": 1}),
    ],
)
def test_a_call_that_copilot_reports_to_two_files_is_one_step(
    project: Path, cli: Cli, mine: str, arguments: object, claudes_name: str, claudes_arguments: object
) -> None:
    """Its own file and Claude's: other names, other spellings, and as many ends."""

    def say(entry: str, event: str, **fields: object) -> None:
        payload = {"cwd": str(project), **fields}
        assert reply([entry, event], json.dumps(payload).encode(), dict(os.environ)) == (b"", b"", 0)

    def own(event: str, **more: object) -> None:
        say("copilot", event, sessionId="s", timestamp=1794736800000, toolName=mine, toolArgs=arguments, **more)

    def claudes(event: str, **more: object) -> None:
        at = {"session_id": "s", "timestamp": "2026-11-15T10:00:00Z", "hook_event_name": event}
        say("claude-code", event, **at, tool_name=claudes_name, tool_input=claudes_arguments, **more)

    def standing_now() -> list[tuple[str, int]]:
        with open_workspace(str(project)) as ws:
            return [(window.actor, window.count) for window in ws.capture.author()[1].open]

    own("preToolUse")
    claudes("PreToolUse")
    assert standing_now() == [("copilot:s", 2)]
    (project / "made").write_text("by the agent")
    own("postToolUse", toolResult={"resultType": "success"})
    assert standing_now() == [("copilot:s", 1)]
    claudes("PostToolUse", tool_response={})
    assert standing_now() == []
    cli("undo")
    assert not (project / "made").exists()


def test_edits_of_two_files_by_copilot_are_two_calls() -> None:
    copilot = registry.load("copilot")
    keys = {copilot.read({"toolName": "edit", "toolArgs": {"path": name}}, "preToolUse").input_key for name in "ab"}
    assert len(keys) == 2
