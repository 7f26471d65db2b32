"""Run processes and say what they took."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Failed(Exception):
    """A measured command ended with an error; its words are the message."""


@dataclass
class Took:
    """One measurement: wall and processor seconds, and the largest resident set in kB (0: not known)."""

    seconds: float
    cpu_s: float = 0
    peak_kb: int = 0
    output: str = ""


# Linux counts the memory of whoever forked a process into that process's peak. So a small process of its own does the
# forking: the peaks start at its 11 MB and not at what this program holds.
# Output goes through a pipe, as agents have it.
SPAWNER = """
import json, os, subprocess, sys, time
for line in sys.stdin:
    argv, cwd, env = json.loads(line)
    started = time.perf_counter()
    child = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.stdout.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, child.returncode,
                      output[-4000:].decode(errors="replace")]), flush=True)
"""


class Spawner:
    """Starts the measured processes, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", SPAWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], ok: Sequence[int]) -> Took:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(argv), str(cwd), dict(env)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise Failed(f"{argv[0]} could not be started")
        seconds, cpu_s, peak_kb, code, output = json.loads(answer)
        if code not in ok:
            raise Failed(f"{' '.join(argv[:4])} … ended with {code}: {output[-600:]}")
        return Took(seconds, cpu_s, peak_kb, output)


_spawners: list[Spawner] = []


def process(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], ok: Sequence[int] = (0,)) -> Took:
    """Run a command to its end. Raises Failed if its exit code is not in `ok`."""
    if not _spawners:
        _spawners.append(Spawner())
    return _spawners[0].run(argv, cwd=cwd, env=env, ok=ok)


def several(commands: Sequence[Sequence[str]], *, cwd: Path, env: Mapping[str, str]) -> Took:
    """Run them one after the other, as one measurement."""
    took = [process(argv, cwd=cwd, env=env) for argv in commands]
    peak_kb = max(t.peak_kb for t in took)
    return Took(sum(t.seconds for t in took), sum(t.cpu_s for t in took), peak_kb, took[-1].output)


def disk_kb(folder: Path) -> int:
    """Allocated blocks of all files, each counted once however many names it has."""
    seen = set()
    total = 0
    for place, dirs, names in os.walk(folder):
        for name in [*dirs, *names]:
            info = os.lstat(os.path.join(place, name))
            if (info.st_dev, info.st_ino) not in seen:
                seen.add((info.st_dev, info.st_ino))
                total += info.st_blocks
    return total // 2


@dataclass
class Series:
    """All measurements of one thing; nothing is dropped."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_kb: int = 0

    def add(self, took: Took) -> None:
        self.seconds.append(took.seconds)
        self.cpu_s.append(took.cpu_s)
        self.peak_kb = max(self.peak_kb, took.peak_kb)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.seconds) * 1000

    @property
    def cpu_ms(self) -> float:
        return statistics.median(self.cpu_s) * 1000
