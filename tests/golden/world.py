"""A folder with its own store where a story happens, told by `reprieve` as a process and by nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from golden.answers import Json, Reader
from golden.manifest import age, manifest
from support import SRC, Result

TEXT = "".join(f"line {n}\n" for n in range(1, 21))
EVENTS = {
    "claude-code": ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    "codex": ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    "gemini": ("BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"),
}
_MESSAGE = re.compile(r"<[0-9a-f]{32}@[a-z.]+>")
_LOOKING = ("status", "diff", "effects", "approvals", "checkpoint")

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
}


class World:
    """A workspace that is not one yet, with a small project in it; `ask` records what it answers."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.root = self.base / "project"
        self.root.mkdir()
        self.home = self.base / "home"
        self.names: dict[str, str] = {}  # what changes from time to time → what stands for it
        self.steps: list[Json] = []
        self.env = {
            "HOME": str(self.base / "person"),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join((str(self.base / "bin"), "/usr/local/bin", "/usr/bin", "/bin")),
            "PYTHONPATH": str(SRC),
            "REPRIEVE_CONFIG": str(self.base / "config.toml"),
            "REPRIEVE_HELPER": "off",
            "REPRIEVE_HOME": str(self.home),
            "TZ": "UTC",
            **GIT,
        }
        (self.base / "person").mkdir()
        (self.base / "bin").mkdir()
        for name, words in (("reprieve", "-m reprieve "), ("python3", "")):
            script = self.base / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
            script.chmod(0o755)

    # -- what happens

    def write(self, name: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file as whoever is at work: a person, outside of every step."""
        path = self.base / name[3:] if name.startswith("../") else self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)

    def sh(self, script: str) -> str:
        """Run a shell script in the folder; what it does is whoever's turn it is."""
        done = subprocess.run(
            ["sh", "-ec", script], cwd=self.root, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def project(self) -> None:
        """A small project, and a checkpoint of it called `base`."""
        self.files()
        self.base_checkpoint()

    def files(self) -> None:
        """The files of a small project."""
        self.write("README.md", "# Project\n")
        self.write("notes.txt", TEXT)
        self.write("src/main.py", "print('hello')\n")
        self.write("src/util.py", "ANSWER = 42\n")
        self.write("data.bin", bytes(range(256)) * 4)
        self.write("tool.sh", "#!/bin/sh\necho tool\n", 0o755)

    def base_checkpoint(self) -> None:
        """Make everything old, so that no time is doubtful, and take the checkpoint `base`."""
        age(self.root)
        self.checkpoint("base")

    def checkpoint(self, label: str) -> str:
        """Take a checkpoint; its id."""
        id = str(self.ok("checkpoint", label, "--json").json["checkpoint"]["id"])
        self.names[id] = f"<{label}>"
        return id

    def run(self, label: str, script: str, *options: str) -> Result:
        """A shell script under `reprieve run`."""
        return self.ok("run", "--label", label, *options, "--", "sh", "-ec", script)

    def python(self, label: str, script: str, *options: str) -> Result:
        """A Python program under `reprieve run`, with the public API at hand."""
        return self.ok("run", "--label", label, *options, "--", sys.executable, "-c", script)

    def line(self, number: int, word: str, name: str = "notes.txt") -> str:
        """A shell command that replaces a line of a file."""
        return f"sed -i {shlex.quote(f'{number}s/.*/{word}/')} {name}"

    # -- what is asked

    def cli(self, *args: str, input: str = "", cwd: Path | None = None) -> Result:
        """Run `reprieve`, whatever its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "reprieve", *args],
            cwd=cwd or self.root,
            env=self.env,
            input=input.encode(),
            capture_output=True,
            timeout=120,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *args: str, input: str = "") -> Result:
        """Run `reprieve`, which has to succeed."""
        done = self.cli(*args, input=input)
        assert done.code == 0, f"reprieve {args} ended with {done.code}\n{done.out}\n{done.err}"
        return done

    def ask(self, *args: str) -> Any:
        """Run a command with --json and record its answer, its exit code and, if it may change files, the tree."""
        before = {path: line.split()[:2] for path, line in self.look().items()}
        done = self.cli(*args, "--json")
        after = {path: line.split()[:2] for path, line in self.look().items()}
        self._name_effects()

        def is_plain_folder(path: str) -> bool:
            path = self.text(path) or "."
            return before.get(path, [""])[0] == "d" and before[path] == after.get(path)

        step: Json = {"command": self.text(" ".join(args)), "exit": done.code}
        step |= Reader(self.text, is_plain_folder).read(done.json)
        if "--dry-run" not in args and args[0] not in _LOOKING:
            is_whole = args[0] in ("rollback", "redo") and not {"--only", "--actor"} & set(args)
            has_kept = bool((done.json.get("report") or {}).get("kept"))
            step["tree"] = self.look() if is_whole and not has_kept else without_folder_times(self.look())
        self.steps.append(step)
        return done.json

    def note(self, name: str, value: object) -> None:
        """Record a fact about the world besides the tree."""
        self.steps.append({"fact": name, "is": value})

    def look(self) -> dict[str, str]:
        """The tree and what lies beside it, without git's own files."""
        found = manifest(self.root, skip=(".git",))
        for name in ("outside", "other"):
            if (self.base / name).is_dir():
                beside = manifest(self.base / name)
                found |= {f"<base>/{name}/{path}".removesuffix("/."): line for path, line in beside.items()}
        return {self.text(path): self.text(line) for path, line in found.items()}

    def git(self) -> None:
        """Record what git says of the folder."""
        show = (
            "git log --all --format='%h %p %s' | sort; git for-each-ref --format='%(refname) %(objectname:short)'",
            "git status --porcelain; git diff --cached --name-status; git symbolic-ref -q HEAD || git rev-parse HEAD",
            "git stash list",
        )
        self.note("git", self.sh("; ".join(show)).splitlines())

    def text(self, text: str) -> str:
        """The same with names in place of ids and folders."""
        for id, name in self.names.items():
            text = text.replace(id, name)
        return _MESSAGE.sub("<message>", text.replace(str(self.base), "<base>"))

    def _name_effects(self) -> None:
        """Number the effects in the order in which they happened."""
        if not (self.home / "effects.db").exists():
            return
        known = self.ok("effects", "--json").json["effects"]
        for number, effect in enumerate(sorted(known, key=lambda effect: int(effect["seq"])), 1):
            self.names.setdefault(effect["id"], f"<effect {number}>")


def without_folder_times(tree: dict[str, str]) -> dict[str, str]:
    """The same where folders may have any time: where something in them stays, no time is promised."""
    return {path: " ".join(line.split()[:2]) if line.startswith("d ") else line for path, line in tree.items()}


class Agent:
    """A coding agent whose hooks call `reprieve`: prompts, calls and their ends."""

    def __init__(self, world: World, session: str = "s1", name: str = "claude-code") -> None:
        self.world, self.session, self.name, self.turns = world, session, name, 0
        self.prompted, self.before, self.after, self.stopped = EVENTS[name]

    def send(self, event: str, **fields: object) -> None:
        """Call the hook."""
        payload = {"session_id": self.session, "cwd": str(self.world.root), "hook_event_name": event, **fields}
        self.world.ok("hook", self.name, event, input=json.dumps(payload))

    @contextmanager
    def turn(self, prompt: str) -> Iterator[None]:
        """One prompt and everything that is done about it."""
        self.turns += 1
        self.send(self.prompted, prompt=prompt, prompt_id=f"p{self.turns}", turn_id=f"p{self.turns}")
        yield
        self.send(self.stopped, prompt_id=f"p{self.turns}", turn_id=f"p{self.turns}")

    def shell(self, call: str, script: str) -> None:
        """A tool call that runs a script."""
        with self.call(call, "run_shell_command" if self.name == "gemini" else "Bash", command=script):
            self.world.sh(script)

    def edit(self, call: str, path: str, content: str) -> None:
        """A tool call that writes a file."""
        arguments = {"file_path": str(self.world.root / path), "content": content}
        with self.call(call, "write_file" if self.name == "gemini" else "Write", **arguments):
            self.world.write(path, content)

    @contextmanager
    def call(self, call: str, tool: str, **arguments: object) -> Iterator[None]:
        """What happens inside is that call's."""
        fields = {"tool_name": tool, "tool_input": arguments, "tool_use_id": call, "prompt_id": f"p{self.turns}"}
        self.send(self.before, **fields)
        yield
        self.send(self.after, **fields, tool_response={})
