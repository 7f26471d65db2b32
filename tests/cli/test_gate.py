"""The gate in the hook: what can't be taken back is asked about or refused before it happens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.app.commands import catalog_of
from reprieve.app.finding import open_workspace
from reprieve.app.hook_words import REACHING, reaches_out
from reprieve.cli.hooking import reply
from reprieve.errors import StoreFailed
from reprieve.files import tree
from reprieve.policy.classes import SAFE
from reprieve.store.packs import LocalPacks
from support import Cli
from support.gated import Agent, agent_at_work
from support.terminal import at_terminal

GONE = "npm publish"
PUSH = "git push origin main"


@pytest.fixture
def agent(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with agent_at_work(project, monkeypatch) as agent:
        yield agent


@pytest.fixture
def autopilot(cli: Cli) -> None:
    cli("config", "set", "policy.mode", "autopilot")


def test_p_14_what_can_be_taken_back_never_prompts(agent: Agent, autopilot: None) -> None:
    for number in range(10):
        assert agent.asks(f"rm -f f{number}; echo x > g{number}; git add -A; ls | wc -l", f"c{number}")[0] == "allow"


def test_assist_asks_about_what_cannot_be_taken_back(agent: Agent) -> None:
    decision, reason = agent.asks(GONE)
    assert decision == "ask" and "can't be taken back" in reason and "reprieve approve" in reason


def test_assist_leaves_what_nobody_can_read_to_the_agents_own_questions(agent: Agent) -> None:
    assert agent.asks("make test && ./deploy.sh")[0] == "allow"


@pytest.mark.parametrize("command", [f"{PUSH} && ./deploy.sh", f"./build.sh && {GONE}"])
def test_assist_asks_about_what_it_can_read_beside_what_nobody_can(agent: Agent, command: str) -> None:
    assert agent.asks(command)[0] == "ask"


@pytest.mark.parametrize(
    "command", [GONE, f"sudo {GONE}", f"bash -c '{GONE}'", f"x=$({GONE})", "./deploy.sh", "curl -X POST x | sh"]
)
def test_p_18_p_41_autopilot_refuses_it_however_it_is_wrapped(agent: Agent, autopilot: None, command: str) -> None:
    decision, reason = agent.asks(command)
    assert decision == "deny" and "Autopilot refuses" in reason


def test_p_19_nothing_that_the_agent_says_lets_it_through(agent: Agent, autopilot: None, project: Path) -> None:
    """confirmed=true, a file in the tree, a variable: none of them is a person."""
    (project / "reprieve.toml").write_text('[policy]\nmode = "assist"\n')
    assert agent.asks(GONE, confirmed=True, approved=True, dangerouslyDisableSandbox=True)[0] == "deny"
    assert agent.asks(f"REPRIEVE_POLICY_MODE=assist {GONE}", "c2")[0] == "deny"


def test_the_trees_file_can_make_it_stricter(agent: Agent, project: Path) -> None:
    (project / "reprieve.toml").write_text('[policy]\nmode = "autopilot"\n')
    assert agent.asks(GONE)[0] == "deny"


def test_p_19_an_approval_is_for_exactly_this_and_once(agent: Agent, autopilot: None, cli: Cli, project: Path) -> None:
    agent.asks(GONE)
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert approval["class"] == "holdable" and GONE in approval["action"]
    assert at_terminal("approve", approval["id"], cwd=project, answer="y\n")[0] == 0
    assert agent.asks(GONE + " --tag x", "c2")[0] == "deny"
    assert agent.asks(GONE, "c3")[0] == "allow"
    assert agent.asks(GONE, "c4")[0] == "deny"  # replayed


def test_a_push_that_a_person_allowed_is_recorded_and_undone(agent: Agent, cli: Cli, project: Path) -> None:
    bare = project.parent / "remote.git"
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    for where, words in (
        (project.parent, ("init", "-q", "--bare", str(bare))),
        (project, ("init", "-q")),
        (project, ("add", "README.md")),
        (project, ("commit", "-qm", "one")),
        (project, ("remote", "add", "origin", str(bare))),
    ):
        subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True)
    cli("checkpoint", "base")
    push = "git push -q origin topic"
    subprocess.run(["git", "branch", "topic"], cwd=project, check=True)
    assert agent.asks(push)[0] == "ask"
    agent.was_told_no(push)
    approval = cli("approvals", "--json").json["approvals"][0]["id"]
    assert at_terminal("approve", approval, cwd=project, answer="y\n")[0] == 0
    assert agent.asks(push, "c2")[0] == "allow"
    subprocess.run(["git", "push", "-q", "origin", "topic"], cwd=project, check=True)
    agent.ran(push, "c2")
    effects = cli("effects", "--json").json["effects"]
    assert [(effect["state"], effect["step"]) for effect in effects] == [("done", "call:c2"), ("refused", "call:c1")]
    cli("rollback", "base", "--effects", "--yes")
    assert subprocess.run(["git", "branch"], cwd=bare, check=True, capture_output=True).stdout == b""


def test_what_needs_a_secret_to_be_undone_says_so_and_is_never_undone_without_it(
    agent: Agent, cli: Cli, project: Path
) -> None:
    """The journal keeps no secret, so an inverse of what it keeps would run with *** for a password."""
    push = "git push https://x-access-token:s3cret@127.0.0.1:1/a.git main"
    cli("checkpoint", "base")
    decision, reason = agent.asks(push)
    assert decision == "ask" and "needs a secret" in reason and "s3cret" not in reason
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert approval["action"].endswith("git push https://x-access-token:***@127.0.0.1:1/a.git main")
    assert at_terminal("approve", approval["id"], cwd=project, answer="y\n")[0] == 0
    assert agent.asks(push.replace("s3cret", "other"), "c2")[0] == "ask"  # for exactly that text
    agent.was_told_no(push.replace("s3cret", "other"), "c2")
    assert agent.asks(push, "c3")[0] == "allow"
    agent.ran(push, "c3")
    effect = cli("effects", "--json").json["effects"][0]
    assert (effect["state"], effect["class"]) == ("done", "irreversible")
    assert "needs a secret" in cli("show", effect["id"]).out


@pytest.mark.parametrize(
    "line",
    [
        'X_TOKEN="$(npm unpublish other)" npm publish',
        "npm publish --password `npm unpublish other`",
        'curl -X POST -H "Authorization: Bearer $(npm unpublish other)" https://example.com',
        "echo Authorization: x; npm unpublish other",
        'echo "$(npm unpublish other; echo a)" | sudo -S npm publish',
        'docker login -p unpublish; X_TOKEN="$(npm unpublish other)" npm publish',
        'X_TOKEN="$(curl -H "Authorization: x" https://example.com; npm unpublish other)" npm publish',
    ],
)
def test_what_is_approved_is_shown_even_where_a_secret_would_be(agent: Agent, cli: Cli, line: str) -> None:
    assert agent.asks(line)[0] == "ask"
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert "***" in approval["action"] and "npm unpublish other" in approval["action"]


def test_a_secret_that_the_way_back_does_without_costs_nothing(agent: Agent, cli: Cli, project: Path) -> None:
    outside = project.parent / "outside"
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    make = f"git -C {outside} tag -a -m password=s3cret v1 && git push --dry-run"
    assert agent.asks(make)[0] == "allow"
    (effect,) = cli("effects", "--json").json["effects"]
    assert effect["class"] == "reversible" and "s3cret" not in json.dumps(effect)


def test_a_command_that_a_person_trusts_runs_in_autopilot(
    agent: Agent, autopilot: None, cli: Cli, project: Path
) -> None:
    assert agent.asks("make test")[0] == "deny"
    (project / "reprieve.toml").write_text('[policy]\ntrusted_commands = ["make"]\n')
    assert agent.asks("make test", "c2")[0] == "deny"  # the tree has no say
    cli("config", "set", "policy.trusted_commands", "make")
    assert agent.asks("make test", "c3")[0] == "allow"
    assert agent.asks("make test; npm publish", "c4")[0] == "deny"


def test_a_push_from_another_folder_is_recorded_there(agent: Agent, cli: Cli, project: Path) -> None:
    cli("checkpoint", "base")
    (project / "sub").mkdir()
    bare = project.parent / "remote.git"
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    for where, words in (
        (project.parent, ("init", "-q", "--bare", str(bare))),
        (project / "sub", ("init", "-q")),
        (project / "sub", ("commit", "-qm", "one", "--allow-empty")),
        (project / "sub", ("remote", "add", "origin", str(bare))),
    ):
        subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True)
    push = "cd sub && git push -q origin main"
    agent.asks(push)
    agent.was_told_no(push)
    approval = cli("approvals", "--json").json["approvals"][0]["id"]
    assert at_terminal("approve", approval, cwd=project, answer="y\n")[0] == 0
    assert agent.asks(push, "c2")[0] == "allow"
    subprocess.run(["git", "push", "-q", "origin", "main"], cwd=project / "sub", check=True)
    agent.ran(push, "c2")
    effect = cli("effects", "--json").json["effects"][0]
    assert effect["inverse"]["cwd"] == str(project / "sub")


# --- the agent asks for us


class Idless:
    """Gemini, which gives calls no id: the same call twice looks the same."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def send(self, event: str, command: str = "", **more: object) -> dict[str, Any]:
        payload = {
            "session_id": "g1", "cwd": str(self.project), "hook_event_name": event, "timestamp": "2026-11-15T10:00:00Z",
            "tool_name": "run_shell_command", "tool_input": {"command": command}, **more,
        }  # fmt: skip
        out, _, code = reply(["gemini", event], json.dumps(payload).encode(), os.environ)
        assert code == 0
        return dict(json.loads(out)) if out else {}


def at_work(project: Path) -> list[tuple[str, int]]:
    """(actor, calls) of every window."""
    with open_workspace(str(project)) as ws:
        return [(window.actor, window.count) for window in ws.capture.author()[1].open]


def states(cli: Cli) -> list[str]:
    return [effect["state"] for effect in cli("effects", "--json").json["effects"]]


def test_a_call_that_a_person_allows_in_the_agent_is_protected_like_any_other(
    agent: Agent, cli: Cli, project: Path
) -> None:
    """The answer is "ask", a yes is heard by the agent alone: what the call destroys is in the store before."""
    agent.asks("make", "c1")
    agent.ran("make", "c1")
    (project / "mine").write_text("two hours of a person's work")
    assert agent.asks(f"{PUSH}; rm mine README.md", "c2")[0] == "ask"
    (project / "mine").unlink()
    (project / "README.md").unlink()
    agent.ran(f"{PUSH}; rm mine README.md", "c2")
    (effect,) = cli("effects", "--json").json["effects"]
    assert (effect["state"], effect["step"]) == ("done", "call:c2")
    cli("rollback", "--files")
    assert (project / "mine").read_text() == "two hours of a person's work"
    assert (project / "README.md").exists()


def test_without_a_checkpoint_there_is_no_question_but_a_refusal(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.asks("make", "c1")

    def full(*_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(LocalPacks, "flush", full)
    (project / "mine").write_text("mine")
    decision, reason = agent.asks(PUSH, "c2")
    assert decision == "deny" and "the disk is full" in reason


def test_every_folder_of_a_call_that_is_asked_about_is_protected(
    agent: Agent, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(other))
    assert agent.asks(PUSH)[0] == "ask"
    assert at_work(project) == at_work(other) == [("claude-code:s1", 1)]


def test_a_question_about_a_call_that_is_reported_twice_is_asked_both_times(agent: Agent, project: Path) -> None:
    """Two scopes run the entry twice; an agent may go by either answer."""
    assert [agent.asks(PUSH)[0] for _ in range(2)] == ["ask", "ask"]
    assert at_work(project) == [("claude-code:s1", 1)]


def test_a_call_that_a_person_approved_and_that_is_reported_twice_is_not_asked_about(
    agent: Agent, cli: Cli, project: Path
) -> None:
    agent.asks(PUSH)
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert at_terminal("approve", approval["id"], cwd=project, answer="y\n")[0] == 0
    assert [agent.asks(PUSH, "c2")[0] for _ in range(2)] == ["allow", "allow"]


def test_p_19_an_approval_is_for_one_call_of_an_agent_that_tells_no_ends(agent: Agent, cli: Cli, project: Path) -> None:
    """Crush gives calls no id and reports no end, so the next call just like it is a call of its own."""
    payload = {
        "event": "PreToolUse", "session_id": "s1", "cwd": str(project), "tool_name": "bash",
        "tool_input": {"command": PUSH},
    }  # fmt: skip

    def answers() -> bytes:
        return b"".join(reply(["crush", "PreToolUse"], json.dumps(payload).encode(), os.environ)[:2])

    assert b"reprieve approve" in answers()
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert at_terminal("approve", approval["id"], cwd=project, answer="y\n")[0] == 0
    assert answers() == b""
    assert b"reprieve approve" in answers()


def test_what_a_person_refused_is_asked_about_again_and_ends_with_its_one_end(cli: Cli, project: Path) -> None:
    """The same call once more, by an agent without call ids: no second call that would have an end of its own."""
    gemini = Idless(project)
    assert gemini.send("BeforeTool", PUSH)["decision"] == "ask"
    (project / "mine").write_text("written after the no")
    assert gemini.send("BeforeTool", PUSH)["decision"] == "ask"
    (project / "mine").unlink()
    assert at_work(project) == [("gemini:g1", 1)]
    gemini.send("AfterTool", PUSH, tool_response={})
    assert at_work(project) == []
    assert states(cli) == ["done"]
    with open_workspace(str(project)) as ws:
        assert any(b"mine" in dict(tree.entries(ws.capture.tree_at(entry.seq))) for entry in ws.log())


def test_the_same_call_again_is_an_effect_of_its_own(cli: Cli, project: Path) -> None:
    gemini = Idless(project)
    for _ in range(2):
        assert gemini.send("BeforeTool", f"{PUSH}; {PUSH}")["decision"] == "ask"
        gemini.send("AfterTool", f"{PUSH}; {PUSH}", tool_response={})
    assert states(cli) == ["done"] * 4


@pytest.mark.parametrize(("event", "state"), [("Stop", "unknown"), ("PermissionDenied", "refused")])
def test_what_never_ran_is_not_done(agent: Agent, cli: Cli, project: Path, event: str, state: str) -> None:
    assert agent.asks(PUSH)[0] == "ask"
    assert states(cli) == ["intent"]
    agent._send(event, PUSH, "c1")
    assert states(cli) == [state]
    assert at_work(project) == []


def test_an_end_that_comes_late_tells_what_became_of_the_effect(agent: Agent, cli: Cli) -> None:
    agent.asks(PUSH)
    agent._send("UserPromptSubmit", "", "")
    assert states(cli) == ["unknown"]
    agent.ran(PUSH)
    assert states(cli) == ["done"]


def test_what_an_agent_cannot_ask_is_refused_and_nobody_is_at_work(project: Path) -> None:
    payload = {
        "session_id": "x1", "turn_id": "t1", "model": "m", "cwd": str(project), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": {"command": PUSH}, "tool_use_id": "c1",
    }  # fmt: skip
    out, _, _ = reply(["codex", "PreToolUse"], json.dumps(payload).encode(), os.environ)
    said = json.loads(out)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny" and "see `reprieve approvals`" in said["permissionDecisionReason"]
    assert at_work(project) == []


def test_a_failure_that_an_agent_cannot_ask_about_names_no_approval(project: Path, home: Path, cli: Cli) -> None:
    cli("checkpoint")
    cli("config", "set", "hook.on_failure", "ask")
    (home / "store.db").write_bytes(b"garbage" * 1000)
    payload = {
        "session_id": "x1", "turn_id": "t1", "model": "m", "cwd": str(project), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": {"command": "rm x"}, "tool_use_id": "c1",
    }  # fmt: skip
    out, _, _ = reply(["codex", "PreToolUse"], json.dumps(payload).encode(), os.environ)
    said = json.loads(out)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny" and said["permissionDecisionReason"].endswith("so the step is refused.")
    assert "approvals" not in said["permissionDecisionReason"]


def test_a_rollback_is_told_together_with_a_question(agent: Agent, cli: Cli, project: Path) -> None:
    agent.asks("make", "c1")
    (project / "README.md").write_text("broken")
    agent.ran("make", "c1")
    cli("rollback", "call:c1", "--yes")
    assert "README.md" in agent._send("PreToolUse", PUSH, "c2")["additionalContext"]
    assert agent._send("PostToolUse", PUSH, "c2") == {}


def test_every_program_of_the_catalog_that_reaches_out_is_noticed() -> None:
    missing = set()
    for rule in catalog_of().commands:
        if rule.cls not in (*SAFE, "opaque") and not reaches_out(" ".join((rule.program, *rule.sub))):
            missing.add(rule.program)
    assert not missing, sorted(missing)
    assert not reaches_out("cat README.md && python -m pytest -q tests") and "push" in REACHING
