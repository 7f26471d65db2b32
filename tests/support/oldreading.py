"""The store of commit 040c750 in a place of its own, and what `reprieve` reads in it.

`reprieve` is a process here; nothing of it is imported. Where the contract renames a command's form, both are tried.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import SRC, Result
from support.oldstore import Json, look, move, unpack

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "store-040c750"
SPACES = ("files", "git", "agents", "effects", "threads")  # without the one whose rollback was interrupted
KINDS = ("checkpoint", "rollback", "undo", "redo", "revert")
_ENTRY = ("id", "kind", "label", "created_at", "actor", "step", "files", "bytes", "changed")
_CHANGE = ("path", "change", "added", "removed", "binary")
_EFFECT = ("id", "kind", "class", "resource", "state", "undo_state")


class OldStore:
    """The unpacked store, moved to `base`. `address` is where its HTTP effects are undone."""

    def __init__(self, base: Path, *, address: str = "http://127.0.0.1:9", source: Path = SRC) -> None:
        self.base = base.resolve()
        self.home = self.base / "home"
        self.facts: Json = json.loads((FIXTURE / "trees.json").read_text())
        self._moved = {self.facts["base"]: str(self.base), self.facts["address"]: address}
        unpack(FIXTURE / "store.tar.xz", self.base, self.facts["made"])
        move(self.home, self._moved)
        for folder in ("bin", "person"):
            (self.base / folder).mkdir()
        for name, words in (("reprieve", "-m reprieve "), ("python3", "")):
            script = self.base / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
            script.chmod(0o755)
        self.env = {
            "HOME": str(self.base / "person"),
            "KEY": "k" * 32,
            "LANG": "C.UTF-8",
            "PATH": f"{self.base}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(source),
            "REPRIEVE_CONFIG": str(self.base / "config.toml"),
            "REPRIEVE_HELPER": "off",
            "REPRIEVE_HOME": str(self.home),
            "TOY": str(self.base / "toy"),
            "TZ": "UTC",
        }

    def points(self, space: str) -> list[Json]:
        """Id, label and tree of the points that a workspace can go back to."""
        found: list[Json] = self.facts["points"][space]
        return found

    def look(self, space: str) -> Json:
        """The tree of a workspace as it is now."""
        return look(self.base / space)

    def cli(self, space: str, *args: str) -> Result:
        """Run `reprieve` in a workspace, whatever its exit code."""
        done = subprocess.run(
            [*(as_root() or ()), sys.executable, "-m", "reprieve", *args],
            cwd=self.base / space,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ask(self, space: str, *args: str) -> Any:
        """The JSON answer of a command that has to succeed."""
        done = self.cli(space, *args, "--json")
        assert done.code == 0, f"reprieve {args} in {space} ended with {done.code}\n{done.out}\n{done.err}"
        return done.json

    # -- what is read

    def read(self, space: str) -> Json:
        """All that is compared with what the old code read."""
        first, last = self.points(space)[0]["id"], self.points(space)[-1]["id"]
        found: Json = {
            "log": [[entry[name] for name in _ENTRY] for entry in self.entries(space) if entry["kind"] in KINDS],
            "diff": self._changes(self._diff(space, first, last)),
            "status": sorted([change["path"], change["change"]] for change in self._status(space, last)),
            "show": {id: self._changes(self._shown(space, id)) for id in self._runs(space)},
            "effects": [self._effect(effect) for effect in self.ask(space, "effects")["effects"]],
        }
        if space == "threads":
            found["threads"] = {one["id"]: self._thread(one) for one in self.ask(space, "thread", "list")["threads"]}
            sealed = ("--state", str(self.base / "sealed"), "--key", "env:KEY")
            found["sealed"] = self.ask(space, "thread", "show", "patient", "head", *sealed)["state"]["values"]
        return found

    def entries(self, space: str) -> list[Json]:
        """The timeline, newest first."""
        done = self.cli(space, "log", "--all", "--checkpoints", "--json")
        found: list[Json] = (done.json if done.code == 0 else self.ask(space, "log", "--all"))["entries"]
        return found

    def _runs(self, space: str) -> list[str]:
        """Entries that end a step."""
        return [entry["id"] for entry in self.entries(space) if entry.get("step") and entry.get("changed")][:6]

    def _diff(self, space: str, a: str, b: str) -> list[Json]:
        done = self.cli(space, "diff", f"{a}..{b}", "--json")
        found: list[Json] = (done.json if done.code in (0, 1) else self.ask(space, "diff", a, b))["changes"]
        return found

    def _status(self, space: str, since: str) -> list[Json]:
        found: list[Json] = self.ask(space, "status", "--since", since)["changes"]
        return found

    def _shown(self, space: str, id: str) -> list[Json]:
        found: list[Json] = self.ask(space, "show", id)["changes"]
        return found

    def _changes(self, changes: list[Json]) -> list[list[object]]:
        return sorted([self._back(change["path"]), *(change[name] for name in _CHANGE[1:])] for change in changes)

    def _effect(self, effect: Json) -> list[str]:
        return [self._back(str(effect[name])) for name in _EFFECT]

    def _thread(self, one: Json) -> Json:
        head = self.ask("threads", "thread", "show", one["id"], "head")["state"]
        return {"states": one["states"], "head": one["head"], "values": head["values"], "files": head.get("files")}

    def _back(self, text: str) -> str:
        for old, new in self._moved.items():
            text = text.replace(new, old)
        return text


@functools.cache
def as_root() -> tuple[str, ...] | None:
    """What to put before a command so that it is root's, as the stored files are; None if nothing helps.

    Another user is root in a user namespace of their own, where the machine allows that.
    """
    if os.geteuid() == 0:
        return ()
    prefix = ("unshare", "--map-root-user", "--")
    is_allowed = shutil.which(prefix[0]) and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if is_allowed else None


def is_plain(tree: Json) -> Json:
    """A tree without times and xattrs: what an undo of one step leaves is compared by its content."""
    return {
        path: {k: v for k, v in one.items() if k in ("kind", "mode", "sha256", "target")} for path, one in tree.items()
    }
