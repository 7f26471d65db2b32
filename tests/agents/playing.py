"""Play an agent's recorded session against real files, through the command that `protect` would install.

Between "before" and "after" the call's work is done for it: the story is the same for all agents, as far as their hooks
tell it. Turn 1: a read, an edit, a shell that deletes an ignored file, a failing and a cancelled call. Turn 2: a
sub-agent, two calls at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reprieve.agents import registry
from reprieve.agents.machine import Machine
from reprieve.agents.protect import protect_plan
from support import SRC

from .recorded import PROJECT, recordings

SESSION = "5f0c1d8e-3b5a-4c61-9d0e-2a7f6b1c9e10"
TREE = dict[str, tuple[int, bytes]]
_TURN_IDS = ("prompt_1", "gen_1", "turn_1", "exec_1", "msg_1")
_COMMAND = re.compile(r"reprieve'? hook (\S+) (\S+)")


class Answered(NamedTuple):
    """What one hook said."""

    name: str
    code: int
    out: bytes
    err: str


def launcher(folder: Path) -> Path:
    """Our command as a program of its own, in a folder with a blank in its name."""
    folder.mkdir()
    path = folder / "reprieve"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={SRC} exec {sys.executable} -m reprieve "$@"\n')
    path.chmod(0o755)
    return path


def installed(agent: str, machine: Machine) -> dict[str, str]:
    """Event → the shell text that the agent would run for it, read out of what `protect` writes."""
    found: dict[str, str] = {}
    for change in protect_plan([agent], "user", machine):
        assert change.problem is None, change.problem
        assert change.new is not None
        if agent == "opencode":
            words = json.loads(change.new.partition("const COMMAND = ")[2].partition("\n")[0])
            for event in registry.load(agent).KINDS:  # type: ignore[attr-defined]
                found[event] = machine.replace(command=tuple(words)).shell_command("hook", agent, event)
            continue
        script = [change.new] if change.new.startswith("#!/bin/sh") else []
        for command in script or _strings(json.loads(change.new)):
            named = _COMMAND.search(command)
            if named and not command.endswith("exit 0"):
                found[named[2]] = command
    return found


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _strings(each)]


def tree(root: Path) -> TREE:
    """Every path with its mode and bytes; a link's target, nothing for a directory."""
    found: TREE = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


class Play:
    """One session of one agent in a project."""

    def __init__(self, agent: str, project: Path, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.agent, self.project = agent, project
        home = folder / "user"
        home.mkdir()
        machine = Machine(
            home=str(home),
            project=str(project),
            platform="linux",
            variables={},
            command=(str(launcher(folder / "bin with blank")),),
        )
        self.commands = installed(agent, machine)
        self.env = {**os.environ, "HOME": str(home), **({"CRUSH": "1"} if agent == "crush" else {}), **(env or {})}
        self.answers: list[Answered] = []
        self.records = {name.partition("-")[2]: record for name, record in recordings(agent)}
        self.actor = f"{agent}:{SESSION}"

    def has(self, name: str) -> bool:
        return name in self.records

    def send(
        self, name: str, *, turn: int = 1, change: Callable[[dict[str, Any]], None] | None = None
    ) -> Answered | None:
        """Have the agent report an event of its recording, None if it does not report such a thing."""
        record = self.records.get(name)
        if record is None:
            return None
        text = json.dumps(record["payload"]).replace(PROJECT, str(self.project))
        if turn > 1:
            for old in _TURN_IDS:
                text = text.replace(f'"{old}"', f'"{old[:-1]}{turn}"')
            text = text.replace("Tidy up the build", f"Turn {turn}: tidy up")
        payload = json.loads(text)
        if change is not None:
            change(payload)
        event = record["argument"] or payload.get("hook_event_name") or payload.get("event")
        if event not in self.commands:
            return None  # not among those that we install
        return self.raw(name, event, json.dumps(payload).encode())

    def raw(self, name: str, event: str, data: bytes) -> Answered:
        done = subprocess.run(
            ["/bin/sh", "-c", self.commands[event]],
            input=data,
            cwd=self.project,
            env=self.env,
            capture_output=True,
            timeout=60,
        )
        answered = Answered(name, done.returncode, done.stdout, done.stderr.decode(errors="replace"))
        self.answers.append(answered)
        return answered

    def ended(self, *names: str, turn: int = 1) -> None:
        for name in names:
            self.send(name, turn=turn)

    def call(self, name: str, work: Callable[[], None], *, turn: int = 1) -> None:
        """A call from beginning to end, as far as the agent reports one."""
        self.send(f"{name}-before", turn=turn)
        if self.has(f"{name}-before"):
            work()
        self.ended(f"{name}-after", f"{name}-failed", turn=turn)

    # -- the story

    def first_turn(self, *, with_person: bool = True) -> None:
        self.send("session-start")
        self.send("prompt")
        self.call("read", lambda: None)
        self.call("edit", self.edit)
        self.call("shell", self.shell)
        if with_person:
            (self.project / "notes.txt").write_text("mine\n")
        self.call("failing", lambda: self.write("half-built.o", "\x7fELF"))
        self.call("cancelled", lambda: self.write("cancelled.txt", "half a"))

    def second_turn(self) -> None:
        self.send("prompt", turn=2)
        for name in ("subagent", "sdk-subagent"):
            self.send(f"{name}-start", turn=2)
            self.call(f"{name}-edit" if name == "subagent" else name, self.subagent, turn=2)
            self.send(f"{name}-stop", turn=2)
        self.send("parallel-a-before", turn=2)
        self.send("parallel-b-before", turn=2)
        self.write("b", "b")
        self.send("parallel-b-after", turn=2)
        self.write("a", "a")
        self.ended("parallel-a-after", "batch", "stop", turn=2)

    def edit(self) -> None:
        path = self.project / "src" / "main.py"
        path.write_text(path.read_text().replace("hello", "bye"))

    def shell(self) -> None:
        (self.project / ".env").unlink()
        shutil.rmtree(self.project / "empty")

    def subagent(self) -> None:
        (self.project / "src" / "util.py").write_text("ANSWER = 43\n")

    def write(self, name: str, text: str) -> None:
        (self.project / name).write_text(text)
