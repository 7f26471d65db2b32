"""Hold a program at an exact moment, or give it another clock (shim.c, preloaded)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import Result
from support.acts import command

SOURCE = Path(__file__).with_name("shim.c")


def build(folder: Path) -> Path:
    """The shim, compiled. Skips where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the shim with")
    built = folder / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", built, SOURCE, "-ldl"], check=True)
    return built


class TooLate(AssertionError):
    """The command ended before that moment came: it takes a few calls more or less from run to run."""


def moments(shim: Path, *args: str | bytes, cwd: Path) -> tuple[int, Result]:
    """Run `reprieve ARGS…` undisturbed; in how many moments could it have been stopped?"""
    counter = shim.with_name(f"count-{os.getpid()}")
    done = subprocess.run(
        command(*args),
        cwd=cwd,
        env={**os.environ, "LD_PRELOAD": str(shim), "SHIM_COUNT": str(counter)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return int(counter.read_text()), Result(done.returncode, done.stdout, done.stderr)


def held(shim: Path, moment: int, meanwhile: Callable[[], None], *args: str | bytes, cwd: Path) -> Result:
    """Run `reprieve ARGS…`, stop it in its N-th moment, let `meanwhile` happen, let it go on."""
    process = subprocess.Popen(
        command(*args),
        cwd=cwd,
        env={**os.environ, "LD_PRELOAD": str(shim), "SHIM_STOP_AT": str(moment)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise TooLate(f"{args!r} ended before moment {moment}")
        meanwhile()
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    return Result(process.returncode, out, err)


def each_moment(
    shim: Path, count: int, prepare: Callable[[], None], meanwhile: Callable[[], None], *args: str | bytes, cwd: Path
) -> Iterator[tuple[int, Result]]:
    """Hold a command in each of its moments, every time in a prepared world; (moment, what the command said)."""
    for moment in range(1, count + 1):
        prepare()
        try:
            answer = held(shim, moment, meanwhile, *args, cwd=cwd)
        except TooLate:
            assert moment > count - 4, f"{count} moments were counted, and only {moment - 1} came"
            return
        yield moment, answer
