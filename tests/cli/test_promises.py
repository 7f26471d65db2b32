"""The helper answers an agent's call by itself where nothing has changed: the entry is promised, and always kept.

What is on the timeline afterwards is what a hook without helper writes; and whatever is not the ordinary case goes the
ordinary way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.cli.helper.place import followed
from support.helper import Installed, is_gone, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the helper is Linux's")

CALL = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make", "description": "build"}}


class Desk:
    """An agent that works in a followed tree."""

    def __init__(self, installed: Installed, root: Path) -> None:
        self.installed, self.root = installed, root
        self.pid = installed.warm(root)
        assert installed.run("checkpoint", cwd=root).returncode == 0
        if self.pid:
            until(lambda: followed(str(installed.home), bytes(root))[0])
        assert installed.run("checkpoint", cwd=root).returncode == 0
        self.turn(1)

    def turn(self, number: int) -> None:
        """A prompt, after which the next call can be promised."""
        self.hook("UserPromptSubmit", prompt=f"turn {number}", prompt_id=f"p{number}")
        self.rest()

    def rest(self) -> None:
        """Until all is done that is done when the agent has its answer."""
        if self.pid:
            until(lambda: not self.is_waiting() and not self.installed.children(self.pid))

    def hook(self, event: str, env: dict[str, str] | None = None, **fields: object) -> bytes:
        payload = {"cwd": str(self.root), "hook_event_name": event, **fields}
        if event != "UserPromptSubmit":
            payload = {**CALL, **payload}
        payload.setdefault("session_id", "s")
        words = ("hook", "claude-code", event)
        done = self.installed.run(*words, cwd=self.root, input=json.dumps(payload).encode(), env=env or {})
        assert done.returncode == 0 and done.stderr == b"", done
        return done.stdout

    @property
    def slot(self) -> Path | None:
        folder = self.installed.home / "promises"
        return next(folder.iterdir(), None) if folder.exists() else None

    @property
    def promised(self) -> str:
        """Id of the entry that was promised last; it can be read until there is another."""
        text = self.slot.read_bytes()[48:].rstrip(b"\0") if self.slot is not None else b""
        # behind it may be the end of a longer one that was there before
        return str(json.JSONDecoder().raw_decode(text.decode())[0]["id"]) if text else ""

    def is_waiting(self) -> bool:
        return self.slot is not None and self.slot.read_bytes()[:8] != bytes(8)

    def stop_spares(self) -> list[int]:
        """Let the fork that would keep a promise wait for ever; its process number."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        until(lambda: children.read_text().split())
        spares = [int(pid) for pid in children.read_text().split()]
        for pid in spares:
            os.kill(pid, signal.SIGSTOP)
        return spares

    def entries(self) -> list[Any]:
        done = self.installed.run("log", "--all", "--json", cwd=self.root, env={"REPRIEVE_HELPER": "off"})
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)["entries"]
        return found

    def begin(self, call: str, **fields: object) -> bool:
        """A call begins; whether that was promised."""
        was = self.promised
        self.hook("PreToolUse", tool_use_id=call, **fields)
        return self.promised != was


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    yield one
    one.close()


@pytest.fixture
def desk(installed: Installed, project: Path) -> Desk:
    return Desk(installed, project)


STORY = """
import json, sys
from reprieve.app.finding import open_workspace
ws = open_workspace(sys.argv[1])
ids = {}
for entry in ws.timeline.after(0):
    ids[entry.id] = f"e{len(ids)}"
    data = json.loads(entry.data or "{}")
    for window in data.get("open", ()):
        ids.setdefault(window["id"], f"w{len(ids)}")
        window["pid"] = bool(window.get("pid"))
        window["born"] = bool(window.get("born"))
    row = [entry.kind, entry.actor, entry.label, entry.note, entry.step, bool(entry.delta), entry.files, entry.size,
           entry.changed, json.dumps(data, sort_keys=True)]
    text = json.dumps(row)
    for id, name in ids.items():
        text = text.replace(id, name)
    print(text.replace(sys.argv[1], "ROOT"))
"""


def story(installed: Installed, root: Path) -> list[str]:
    """All that a timeline says, but for numbers that are drawn by lot and times."""
    argv = [installed.bin / "python", "-c", STORY, root]
    return subprocess.run(argv, env=installed.env, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_call_is_answered_by_a_promise_and_the_promise_is_kept(desk: Desk) -> None:
    assert desk.begin("c1")
    until(lambda: not desk.is_waiting())
    entry = desk.entries()[0]
    assert entry["id"] == desk.promised and entry["label"] == "before Bash: make"
    (desk.root / "made").write_text("by the agent\n")
    desk.hook("PostToolUse", tool_use_id="c1", tool_response={})
    done = desk.installed.run("rollback", "call:c1", "--json", cwd=desk.root)
    assert done.returncode == 0 and not (desk.root / "made").exists()
    assert desk.installed.directs == 2  # the first command, and `log` of this test


def test_a_session_is_the_same_with_and_without(installed: Installed, project: Path, tmp_path: Path) -> None:
    """Prompts, calls with and without changes, a failed one, two at once: the same words on both timelines."""
    other = tmp_path / "again" / "project"
    other.parent.mkdir()
    shutil.copytree(project, other, symlinks=True)
    direct = Installed(tmp_path / "again" / "installed")
    direct.env["REPRIEVE_HELPER"] = "off"
    stories, promised = [], 0
    for one, root in ((direct, other), (installed, project)):
        desk = Desk(one, root)
        for number, tool in enumerate(("make", "touch made", "echo token=abcdef123456", "rm -f made", "git push")):
            desk.rest()
            fields = {"tool_use_id": f"c{number}", "tool_input": {"command": tool}, "transcript_path": "/t.jsonl"}
            promised += desk.begin(f"c{number}", **{k: v for k, v in fields.items() if k != "tool_use_id"})
            if tool.startswith(("touch", "rm")):
                subprocess.run(tool, shell=True, cwd=root, check=True)
            event = "PostToolUseFailure" if number == 2 else "PostToolUse"
            desk.rest()
            desk.hook(event, tool_response={}, **fields)
        desk.rest()
        promised += desk.begin("d1")
        desk.rest()
        promised += desk.begin("d2", tool_name="Edit", tool_input={"file_path": "src/main.py"})
        desk.rest()
        desk.hook("PreToolUse", tool_use_id="d2", tool_name="Edit")  # reported twice
        desk.hook("Stop")
        desk.rest()
        stories.append(story(one, root))
    assert stories[0] == stories[1]
    assert promised >= 4


def test_what_a_person_changed_is_kept_before_the_call(desk: Desk) -> None:
    """A promise says that nothing changed: one byte that did, and there is none."""
    path = desk.root / "README.md"
    path.write_text("by a person\n")
    assert not desk.begin("c1")
    path.write_text("by the agent\n")
    desk.hook("PostToolUse", tool_use_id="c1", tool_response={})
    assert desk.installed.run("rollback", "call:c1", cwd=desk.root).returncode == 0
    assert path.read_text() == "by a person\n"


def test_a_write_through_another_name_is_not_missed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "other name"
    os.link(desk.root / "README.md", outside)
    desk.turn(3)
    with outside.open("r+") as file:
        file.write("BY A PERSON")
    assert not desk.begin("c1")
    (desk.root / "README.md").write_text("by the agent\n")
    desk.hook("PostToolUse", tool_use_id="c1", tool_response={})
    assert desk.installed.run("rollback", "call:c1", cwd=desk.root).returncode == 0
    assert (desk.root / "README.md").read_text().startswith("BY A PERSON")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_input": {"command": "git push origin main"}},
        {"session_id": "another"},
        {"agent_id": "sub"},
        {"tool_input": {"command": "make", "run_in_background": True}},
        {"cwd": "/"},
        {"tool_name": "Edit", "tool_input": {"file_path": "/etc/hostname"}},
    ],
)
def test_what_is_not_ordinary_is_not_promised(desk: Desk, fields: dict[str, object]) -> None:
    assert not desk.begin("c1", **fields)
    desk.turn(3)
    assert desk.begin("c2")


def test_an_agent_without_ids_for_its_calls_is_not_promised(desk: Desk) -> None:
    was = desk.promised
    desk.hook("PreToolUse")
    assert desk.promised == was


def test_a_call_in_a_workspace_inside_of_this_one_is_not_promised(installed: Installed, project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    assert installed.run("init", cwd=inner).returncode == 0
    desk = Desk(installed, project)
    assert not desk.begin("c1", tool_name="Write", tool_input={"file_path": str(inner / "x")})


def test_an_agent_is_told_of_a_rollback_before_its_next_call(desk: Desk) -> None:
    desk.begin("c1")
    (desk.root / "made").write_text("x")
    desk.hook("PostToolUse", tool_use_id="c1", tool_response={})
    assert desk.installed.run("rollback", "call:c1", cwd=desk.root).returncode == 0
    assert b"made" in desk.hook("PreToolUse", tool_use_id="c2")


def test_whoever_wrote_to_the_store_ends_it(desk: Desk) -> None:
    """A checkpoint by somebody else, a setting, a tracked path: what the ticket says may not hold any more."""
    assert desk.installed.run("checkpoint", cwd=desk.root, env={"REPRIEVE_HELPER": "off"}).returncode == 0
    assert not desk.begin("c1")
    desk.turn(3)
    assert desk.installed.run("config", "set", "policy.mode", "autopilot", cwd=desk.root).returncode == 0
    assert not desk.begin("c2", tool_input={"command": "ls"})


def test_who_holds_the_workspace_is_waited_for(desk: Desk) -> None:
    import fcntl

    path = next(p for p in (desk.installed.home / "locks").iterdir() if p.name == desk.slot.name)  # type: ignore[union-attr]
    with path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        payload = json.dumps({**CALL, "cwd": str(desk.root), "hook_event_name": "PreToolUse", "tool_use_id": "c1"})
        waiting = desk.installed.begin("hook", "claude-code", "PreToolUse", cwd=desk.root)
        assert waiting.stdin is not None
        waiting.stdin.write(payload.encode())
        waiting.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
    waiting.stdin = None
    assert waiting.communicate(timeout=20) == (b"", b"") and waiting.returncode == 0
    assert desk.entries()[0]["label"] == "before Bash: make"


def test_without_its_file_nothing_is_promised(desk: Desk) -> None:
    """The helper has it open still; what it wrote there nobody would find."""
    assert desk.slot is not None
    desk.slot.unlink()
    desk.hook("PreToolUse", tool_use_id="c1")
    assert desk.entries()[0]["label"] == "before Bash: make"


@pytest.mark.parametrize(
    "next_command", [("log", "--json"), ("status",), ("rollback", "--yes"), ("undo", "call:c1", "--dry-run")]
)
def test_a_promise_that_nobody_kept_is_kept_by_the_next_command(desk: Desk, next_command: tuple[str, ...]) -> None:
    """The helper and all of its forks are killed as soon as the agent has its answer."""
    spares = desk.stop_spares()
    assert desk.begin("c1")
    assert desk.is_waiting()
    for pid in (desk.pid, *spares):
        os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(desk.pid))
    (desk.root / "made").write_text("by the agent\n")
    done = desk.installed.run(*next_command, cwd=desk.root, env={"REPRIEVE_HELPER": "off"})
    assert done.returncode in (0, 1), done
    assert not desk.is_waiting()
    assert [entry["id"] for entry in desk.entries()].count(desk.promised) == 1
    assert b"before Bash: make" in desk.installed.run("show", desk.promised, cwd=desk.root).stdout


def test_the_end_of_a_call_finds_its_promised_beginning(desk: Desk) -> None:
    spares = desk.stop_spares()
    assert desk.begin("c1") and desk.is_waiting()
    (desk.root / "made").write_text("by the agent\n")
    desk.hook("PostToolUse", tool_use_id="c1", tool_response={})
    for spare in spares:
        os.kill(spare, signal.SIGKILL)
    newest, before = desk.entries()[:2]
    assert before["id"] == desk.promised and newest["actor"] == "claude-code:s" and newest["label"] == "Bash: make"


def test_a_torn_promise_was_never_made(desk: Desk) -> None:
    """It is not durable before the agent has its answer: half of one is of a power cut before that."""
    assert desk.begin("c1")
    until(lambda: not desk.is_waiting())
    assert desk.slot is not None
    whole = desk.slot.read_bytes()
    count = len(desk.entries())
    desk.slot.write_bytes(b"RPPROM01" + whole[8:4000] + b"torn" + whole[4004:])
    assert len(desk.entries()) == count
    assert desk.installed.run("checkpoint", cwd=desk.root).returncode == 0


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_the_agent_is_answered_after_the_promise_is_durable(desk: Desk, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    watched = "pwrite64,fdatasync,sendto,sendmsg,?poll,ppoll,?stat,newfstatat,statx,clone,clone3,?fork,?vfork"
    words = ["strace", "-p", str(desk.pid), "-e", f"trace={watched}", "-o", str(trace)]
    tracer = subprocess.Popen(words, stderr=subprocess.PIPE)
    assert tracer.stderr is not None and b"attached" in tracer.stderr.readline()
    assert desk.begin("c1")
    desk.rest()
    tracer.send_signal(signal.SIGINT)
    tracer.communicate(timeout=20)
    lines = [line for line in trace.read_text().splitlines() if "(" in line]
    calls = [line.partition("(")[0].replace("ppoll", "poll") for line in lines]
    at = next(n for n, line in enumerate(lines) if "RPPROM01" in line)
    told = calls.index("sendto", at)
    assert calls[at : at + 2] == ["pwrite64", "fdatasync"] and set(calls[at + 2 : told]) <= {"poll"}
    # and then at rest: who was answered would wait for the processor as long as the helper works on
    assert calls[told + 1] == "poll"


# Without the helper: the ticket is a file, and the scan tells whether something changed.


@pytest.fixture
def lone(installed: Installed, project: Path) -> Desk:
    """The same where no helper runs, in a tree that is large enough for a scan to be begun early."""
    for number in range(700):
        path = project / "many" / f"d{number % 20}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    installed.env["REPRIEVE_HELPER"] = "off"
    return Desk(installed, project)


@pytest.fixture
def two_processors() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the scan begins early only where there are two processors")


@pytest.mark.usefixtures("two_processors")
def test_a_hook_by_itself_promises_too(lone: Desk) -> None:
    assert lone.begin("c1") and lone.is_waiting()
    (lone.root / "made").write_text("by the agent\n")
    lone.hook("PostToolUse", tool_use_id="c1", tool_response={})
    newest, before = lone.entries()[:2]
    assert before["id"] == lone.promised and newest["actor"] == "claude-code:s" and not lone.is_waiting()
    assert lone.installed.run("rollback", "call:c1", cwd=lone.root).returncode == 0
    assert not (lone.root / "made").exists()


@pytest.mark.usefixtures("two_processors")
def test_by_itself_it_is_the_same_with_and_without_tickets(lone: Desk, tmp_path: Path) -> None:
    other = tmp_path / "again" / "project"
    other.parent.mkdir()
    shutil.copytree(lone.root, other, symlinks=True)
    again = Installed(tmp_path / "again" / "installed")
    again.env["REPRIEVE_HELPER"] = "off"
    plain = Desk(again, other)
    stories, promised = [], 0
    for desk in (lone, plain):
        for number in range(4):
            if desk is plain:
                shutil.rmtree(again.home / "tickets", ignore_errors=True)
            promised += desk.begin(f"c{number}", tool_input={"command": f"echo {number} token=abcdef123456"})
            (desk.root / "made").write_text(f"{number // 2}\n")
            desk.hook("PostToolUse", tool_use_id=f"c{number}", tool_response={})
        desk.begin("d1")
        desk.begin("d1")
        desk.hook("Stop")
        stories.append(story(desk.installed, desk.root))
    assert stories[0] == stories[1] and promised >= 2


@pytest.mark.parametrize("what", ["README.md", "many/d3/new", "many/d7/f7"])
def test_by_itself_it_keeps_what_a_person_changed(lone: Desk, what: str) -> None:
    path = lone.root / what
    path.write_text("by a person\n")
    assert not lone.begin("c1")
    path.write_text("by the agent\n")
    lone.hook("PostToolUse", tool_use_id="c1", tool_response={})
    assert lone.installed.run("rollback", "call:c1", cwd=lone.root).returncode == 0
    assert path.read_text() == "by a person\n"


@pytest.mark.parametrize("harm", ["cut", "foreign", "gone", "other database"])
def test_by_itself_a_useless_ticket_costs_nothing_but_time(lone: Desk, harm: str) -> None:
    ticket = next((lone.installed.home / "tickets").iterdir())
    if harm == "cut":
        ticket.write_bytes(ticket.read_bytes()[:100])
    elif harm == "foreign":
        ticket.write_bytes(b"not one of ours")
    elif harm == "gone":
        ticket.unlink()
    else:
        copy = lone.installed.home / "tmp" / "copy"
        shutil.copy2(lone.installed.home / "store.db", copy)
        copy.rename(lone.installed.home / "store.db")
    assert not lone.begin("c1")
    assert lone.entries()[0]["label"] == "before Bash: make"


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_by_itself_it_believes_no_store_that_others_can_write(lone: Desk, mode: int) -> None:
    lone.installed.home.chmod(mode)
    payload = json.dumps({**CALL, "cwd": str(lone.root), "hook_event_name": "PreToolUse", "tool_use_id": "c1"})
    done = lone.installed.run("hook", "claude-code", "PreToolUse", cwd=lone.root, input=payload.encode())
    lone.installed.home.chmod(0o700)
    assert b'"deny"' in done.stdout and b"open to other users" in done.stdout and not lone.is_waiting()
