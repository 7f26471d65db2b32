"""A hook before a tool call that can't do its work makes the agent block the call, in that agent's own format.

Each agent's documentation says what blocks a call: exit 2 with a reason on standard error, or a JSON answer. Failures
are real: programs that are gone, killed or broken, a store that is locked, a disk that is full.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.playing import installed as lines_of
from reprieve.agents import foreign, registry
from reprieve.agents.health import diagnose_agents
from reprieve.agents.machine import Machine
from reprieve.agents.protect import protect_plan, unprotect_plan
from reprieve.model.hookevent import BEFORE
from support import SRC
from support.helper import Installed, launched, until

Done = subprocess.CompletedProcess[bytes]

# opencode's plugin refuses by itself: tests/agents/test_opencode_plugin.py
AGENTS = [name for name in registry.NAMES if name != "opencode"]
EVENTS = [
    (name, event)
    for name in registry.NAMES
    for event in registry.load("copilot" if name == "vscode" else name).KINDS  # type: ignore[attr-defined]
]


def kind_of(agent: str, event: str) -> str:
    kinds: dict[str, str] = registry.load(agent).KINDS  # type: ignore[attr-defined]
    return kinds[event]


def blocks(agent: str, done: Done, kind: str = BEFORE) -> bool:
    """Whether this agent would block the call or, on another event, whatever it is about."""
    answer = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith(b"{") else {}
    if agent == "cline":
        return answer.get("cancel") is True
    if agent in ("copilot", "opencode") and kind == BEFORE and done.returncode != 0:
        return True
    if agent == "opencode":
        return answer.get("deny") is True
    specific = answer.get("hookSpecificOutput", {})
    denies = {answer.get("decision"), answer.get("permission"), answer.get("permissionDecision")}
    denies.add(specific.get("permissionDecision"))
    if agent == "vscode":
        denies = {specific.get("permissionDecision")}
    # exit 2 without a reason is no block for Codex
    return (done.returncode == 2 and bool(done.stderr.strip())) or bool({"deny", "block"} & denies)


def named(agent: str) -> str:
    """The agent in whose name the command is called."""
    return "copilot" if agent == "vscode" else agent


def is_right(agent: str, event: str, done: Done) -> bool:
    """Whether the call is blocked, and no other event is."""
    kind = kind_of(named(agent), event)
    return blocks(agent, done, kind) is (kind == BEFORE)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "ada").mkdir()
    (tmp_path / "bin with blank").mkdir()
    program = tmp_path / "bin with blank" / "reprieve"
    return Machine(
        home=str(tmp_path / "ada"), project=str(tmp_path), platform="linux", variables={}, command=(str(program),)
    )


def broken(machine: Machine, script: str) -> None:
    path = Path(machine.command[0])
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def shell(line: str) -> Done:
    return subprocess.run(["/bin/sh", "-c", line], input=b"{}", capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("agent", AGENTS)
def test_without_our_program_the_call_is_blocked_and_the_person_learns_which_file_to_change(
    agent: str, machine: Machine
) -> None:
    for event, line in lines_of(agent, machine).items():
        done = shell(line)
        assert is_right(agent, event, done), (event, done)
        if kind_of(named(agent), event) != BEFORE:
            continue
        said = (done.stdout + done.stderr).decode()
        target = next(t for t in registry.load(agent).targets(machine, "user") if t.part in ("hooks", event))
        assert "Reprieve is not installed any more" in said
        assert target.path.replace(machine.home, "~") in said
        assert "reprieve unprotect" in said


@pytest.mark.parametrize("script", ["kill -9 $$", "exit 1", "exit 70", "echo half of an ans; exit 3", "kill -15 $$"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_program_that_ends_without_an_answer_blocks_the_call_and_names_no_switch(
    agent: str, script: str, machine: Machine
) -> None:
    broken(machine, script if agent != "cline" else script.replace("echo half of an ans; ", ""))
    for event, line in lines_of(agent, machine).items():
        done = shell(line)
        assert is_right(agent, event, done), (event, done)
        if kind_of(named(agent), event) == BEFORE:
            said = (done.stdout + done.stderr).decode()
            assert "Blocked by Reprieve" in said and "reprieve doctor" in said
            assert "unprotect" not in said and "REPRIEVE_" not in said


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "cline"])
def test_the_line_works_without_a_shell_and_passes_on_what_we_say(agent: str, machine: Machine) -> None:
    """Codex runs it in the person's shell, which may be fish; others may split it into words."""
    broken(machine, 'cat; echo " $@"')
    for event, line in lines_of(agent, machine).items():
        if kind_of(named(agent), event) == BEFORE:
            done = subprocess.run(shlex.split(line), input=b"{}", capture_output=True, timeout=60, check=False)
            assert (done.stdout, done.returncode) == (f"{{}} hook {named(agent)} {event}\n".encode(), 0)
    broken(machine, "echo no >&2; exit 2")
    for event, line in lines_of(agent, machine).items():
        if kind_of(named(agent), event) == BEFORE:
            done = shell(line)
            assert (done.stderr, done.returncode) == (b"no\n", 2)  # a refusal of ours stays as it is


def test_a_launcher_whose_python_is_gone_blocks_every_call(tmp_path: Path) -> None:
    """Also in lines of earlier versions, which call it without anything around it."""
    shutil.copy(launched(), tmp_path / "reprieve")
    for agent, event in EVENTS:
        words = [tmp_path / "reprieve", "hook", named(agent), event]
        done = subprocess.run(words, input=b"{}", capture_output=True, timeout=60, check=False)
        assert is_right(agent, event, done), (agent, event, done)
        assert b"it can't start Python" in done.stderr


def test_a_line_without_an_event_blocks_unless_the_payload_says_otherwise(tmp_path: Path) -> None:
    shutil.copy(launched(), tmp_path / "reprieve")
    for payload, is_blocked in (
        (b'{"hook_event_name": "PreToolUse"}', True),
        (b'{"tool_input": {"hook_event_name": "Stop"}, "hook_event_name":"PreToolUse"}', True),
        (b'{"hook_event_name": "UserPromptSubmit"}', False),
        (b'{"hook_event_name": "Stop"}', False),
        (b"", True),
    ):
        env = {"REPRIEVE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [tmp_path / "reprieve", "hook", "claude-code"], input=payload, env=env, capture_output=True, check=False
        )
        assert blocks("claude-code", done) is is_blocked, (payload, done)


def test_a_script_whose_package_is_gone_blocks_every_call(tmp_path: Path) -> None:
    """pip removes the old package before it puts the new one there."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python, script = tmp_path / "venv" / "bin" / "python", SRC.parent / "bin" / "reprieve"
    for agent, event in EVENTS:
        words = [python, "-S", script, "hook", named(agent), event]
        done = subprocess.run(words, input=b"{}", env={}, capture_output=True, timeout=60, check=False)
        assert is_right(agent, event, done), (agent, event, done)
        assert b"part of its installation is missing" in done.stderr


def test_an_exception_at_import_blocks_the_call(tmp_path: Path) -> None:
    """As in the middle of an upgrade: a module of the new version is there, one that it needs is of the old."""
    shutil.copytree(SRC / "reprieve", tmp_path / "reprieve", ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / "reprieve" / "cli" / "hooking.py"
    module.write_text(module.read_text().replace("DENY,", "DENY, NOT_THERE_YET,", 1))
    script = SRC.parent / "bin" / "reprieve"
    done = subprocess.run(
        [sys.executable, script, "hook", "claude-code", "PreToolUse"],
        input=b"{}", env={"PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert blocks("claude-code", done), done


@pytest.fixture
def one(tmp_path: Path, project: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    yield one
    one.close()


def payload(project: Path) -> bytes:
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c1", "session_id": "s"}
    return json.dumps({"hook_event_name": "PreToolUse", "cwd": str(project), **call}).encode()


@pytest.mark.parametrize("victim", ["fork", "fork and helper", "none, the time is up"])
def test_a_fork_that_is_killed_blocks_the_call(victim: str, one: Installed, project: Path) -> None:
    """The hook waits for the store while it is killed, as by the kernel when memory runs out."""
    helper = one.warm(project)
    (project / "mine").write_text("new")  # there is something to save
    store = sqlite3.connect(one.home / "store.db", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")
    hook = one.begin("hook", "claude-code", "PreToolUse", cwd=project)
    assert hook.stdin is not None
    hook.stdin.write(payload(project))
    hook.stdin.close()
    hook.stdin = None
    # the fork may begin: before that the launcher would do without it
    until(lambda: any("pidfd" in os.readlink(fd) for fd in Path(f"/proc/{hook.pid}/fd").iterdir()))
    fork = one.child(helper, project)
    if victim == "none, the time is up":
        os.kill(hook.pid, signal.SIGALRM)
    else:
        if "helper" in victim:
            os.kill(helper, signal.SIGKILL)
        os.kill(fork, signal.SIGKILL)
    out, err = hook.communicate(timeout=60)
    store.execute("ROLLBACK")
    store.close()
    assert blocks("claude-code", subprocess.CompletedProcess([], hook.returncode, out, err)), err
    assert b"reprieve doctor" in err
    after = one.run("hook", "claude-code", "PreToolUse", cwd=project, input=payload(project))
    assert (after.stdout, after.returncode) == (b"", 0), after


@pytest.mark.parametrize("agent", registry.NAMES)
def test_a_payload_that_cannot_be_read_blocks_the_call(agent: str, machine: Machine, project: Path, home: Path) -> None:
    broken(machine, f'exec env PYTHONPATH={SRC} {sys.executable} -m reprieve "$@"')
    for event, line in lines_of(agent, machine).items():
        if event not in ("PreToolUse", "BeforeTool", "preToolUse", "before", "pre_run_command", "Stop", "stop"):
            continue
        for data in ("/dev/null", "closed", "half"):
            pipe = "<&-" if data == "closed" else f"<{data}"
            if data == "half":
                (project / "half").write_text('{"tool_na')
            script = f"{{ {line}\n}} {pipe}"
            done = subprocess.run(["/bin/sh", "-c", script], cwd=project, capture_output=True, timeout=60, check=False)
            assert is_right(agent, event, done), (event, data, done)


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "cline"])  # it heeds standard output alone
def test_a_refusal_that_cannot_be_written_blocks_the_call(agent: str, machine: Machine, home: Path) -> None:
    """The answer goes to a file on a disk that is full."""
    broken(machine, f'exec env PYTHONPATH={SRC} {sys.executable} -m reprieve "$@"')
    for event, line in lines_of(agent, machine).items():
        if kind_of(named(agent), event) == BEFORE:
            with open("/dev/full", "wb") as full:
                argv = ["/bin/sh", "-c", line]
                done = subprocess.run(argv, input=b"{", stdout=full, stderr=subprocess.PIPE, check=False)
            done.stdout = b""
            assert blocks(agent, done), done


@pytest.mark.parametrize("agent", AGENTS)
def test_lines_of_earlier_versions_are_noticed_brought_up_to_date_and_removed(
    agent: str, machine: Machine, tmp_path: Path
) -> None:
    records, old = str(tmp_path / "records"), {}
    for change in protect_plan([agent], "user", machine):
        foreign.apply(change, records=records)
        text = Path(change.path).read_text()
        for event, line in lines_of(agent, machine).items():
            if kind_of(named(agent), event) == BEFORE:
                before = machine.shell_command("hook", named(agent), event)
                if agent == "cline":
                    before = f"#!/bin/sh\n# Remove with: reprieve unprotect cline\nexec {before}\n"
                before += " || true" if named(agent) == "copilot" else ""
                text = text.replace(*(t if agent == "cline" else json.dumps(t) for t in (line, before)))
        old[change.path] = text
        Path(change.path).write_text(text)
    warned = [finding for finding in diagnose_agents(machine, records=records, seen={}) if finding.level == "warn"]
    assert any("reprieve protect" in finding.hint for finding in warned)
    plan = protect_plan([agent], "user", machine)
    assert any(change.is_needed and change.had_ours for change in plan)
    for change in plan:
        foreign.apply(change, records=records)
    assert all(is_right(agent, event, shell(line)) for event, line in lines_of(agent, machine).items())
    for path, text in old.items():
        Path(path).write_text(text)
    for change in unprotect_plan([agent], machine, records="/nonexistent"):
        foreign.apply(change, records=records)
    assert all(not Path(path).exists() or "reprieve" not in Path(path).read_text() for path in old)
