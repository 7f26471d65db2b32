"""Restores of thousands of files, which use threads, ended by a signal at any moment: all or nothing afterwards.

The sweeps strike between two calls of a small move. Here nobody knows what the threads are at.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from support import SRC

FILES = 2500
SEED = int(os.environ.get("REPRIEVE_SEED", "0")) or time.time_ns() & 0xFFFFFF
MOMENTS = (0.15, 0.5, 0.85)  # of what the command takes, more or less

Tree = dict[str, tuple[int, int, bytes]]


def read(root: Path) -> Tree:
    """Every name with mode, time and content; a directory's content is its names'."""
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            st = path.lstat()
            found[str(path.relative_to(root))] = st.st_mode, st.st_mtime_ns, b"" if path.is_dir() else path.read_bytes()
    return found


class World:
    """A workspace with two checkpoints that differ in thousands of files."""

    def __init__(self, base: Path) -> None:
        self.root = base / "tree"
        self.root.mkdir()
        self.env = {**os.environ, "REPRIEVE_HOME": str(base / "home"), "REPRIEVE_CONFIG": str(base / "config.toml")}
        self.env.update(PYTHONPATH=str(SRC), REPRIEVE_HELPER="off")
        for number in range(FILES):
            self.write(number, b"one %d\n" % number * (1 + number % 40))
        self.ids = [self.checkpoint()]
        self.states = [read(self.root)]
        for number in range(FILES):
            if number % 10 < 6:
                self.write(number, b"two %d\n" % number * (1 + number % 30))
            elif number % 10 < 8:
                self.file(number).unlink()
            self.write(number + FILES, b"new %d\n" % number)
        self.ids.append(self.checkpoint())
        self.states.append(read(self.root))

    def file(self, number: int) -> Path:
        return self.root / f"d{number % 50}" / f"e{number // 400}" / f"f{number}"

    def write(self, number: int, data: bytes) -> None:
        self.file(number).parent.mkdir(parents=True, exist_ok=True)
        self.file(number).write_bytes(data)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "reprieve", *words],
            cwd=self.root,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> str:
        process = self.start(*words)
        out, err = process.communicate()
        assert process.returncode in (0, 1), (words, process.returncode, err)
        return out

    def checkpoint(self) -> str:
        return self.run("checkpoint").split()[-1]

    def where(self) -> int:
        """Which of the two states the tree is in. Fails where it is in neither."""
        now = read(self.root)
        differing = [{path for path in {*now, *state} if now.get(path) != state.get(path)} for state in self.states]
        assert set() in differing, f"seed {SEED}: a mix: {[sorted(paths)[:5] for paths in differing]}"
        return differing.index(set())


def test_C04_C08_a_restore_of_thousands_of_files_ended_by_a_signal_is_all_or_nothing(tmp_path: Path) -> None:
    """SIGINT, SIGTERM and SIGKILL, early, in the middle and late; the next command finishes it or takes it back."""
    world, rng = World(tmp_path), random.Random(SEED)
    started = time.monotonic()
    world.run("rollback", world.ids[0], "--yes")
    took = time.monotonic() - started
    assert world.where() == 0
    ended, at = [], 0
    for moment in MOMENTS:
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = world.start("rollback", world.ids[1 - at], "--yes")
            time.sleep(max(0.0, took * (moment + rng.uniform(-0.12, 0.12))))
            process.send_signal(sign)
            process.communicate()
            ended.append(process.returncode)
            world.run("status")  # whatever was begun is finished now, or taken back
            at = world.where()
    assert sum(code != 0 for code in ended) >= 5, f"seed {SEED}: hardly one was struck: {ended}"
    world.run("rollback", world.ids[1 - at], "--yes")
    assert world.where() == 1 - at
    assert world.run("verify")
