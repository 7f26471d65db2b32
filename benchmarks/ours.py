"""Reprieve as it is measured: installed for good into an environment of its own, as a process and as a library."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import trees
from benchmarks.measure import Failed, Took, process
from benchmarks.peers import System

REPOSITORY = Path(__file__).resolve().parent.parent
_INSTALLED = "BENCHMARK_INSTALLED"  # set in what run_installed runs
NOT_SOURCE = shutil.ignore_patterns(".git", "build", "*.egg-info", "*.so", "__pycache__", ".*_cache", ".hypothesis")


def install(folder: Path, *, repository: Path = REPOSITORY, extra: str = "", beside: Sequence[str] = ()) -> Path:
    """Install the working tree into an environment (not editable: measured is what users get, .pyc files included)."""
    source = folder / "source"
    shutil.copytree(repository, source, ignore=NOT_SOURCE)  # a build in the repository itself may pick up stale files
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, env=trees.quiet_env())
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    wanted = f"{source}[{extra}]" if extra else str(source)
    subprocess.run([*pip, wanted, *beside], check=True, env=trees.quiet_env())
    if not (folder / "venv/bin/reprieve").exists():
        raise Failed("the package was installed, but has no `reprieve` command")
    return folder / "venv/bin"


def run_installed(module: str, *, extra: str, beside: Sequence[str]) -> int:
    """Run a benchmark again, as it was called, in an environment that has what is missing here; its exit code."""
    if _INSTALLED in os.environ:
        raise Failed(f"{module} misses something in the environment that was made for it: its extra is not enough")
    with tempfile.TemporaryDirectory(prefix="reprieve-benchmark-") as folder:
        wanted = ", ".join([f"reprieve[{extra}]", *beside])
        print(f"installing {wanted} into an environment of its own", file=sys.stderr)
        python = install(Path(folder), extra=extra, beside=beside) / "python"
        environ = trees.quiet_env() | {_INSTALLED: "yes"}
        return subprocess.run([python, "-m", module, *sys.argv[1:]], cwd=REPOSITORY, env=environ).returncode


def helper(home: Path) -> int:
    """The number of the resident helper's process, 0 if there is none."""
    try:
        with socket.socket(socket.AF_UNIX) as one:
            here = os.open(home, os.O_RDONLY)
            try:
                one.connect(f"/proc/self/fd/{here}/helper")
            finally:
                os.close(here)
            return int(struct.unpack("=iII", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    except OSError:
        return 0


def start_helper(programs: Path, *, cwd: Path, env: Mapping[str, str]) -> None:
    """Have a helper before anything is measured, where the launcher was built; the store must be there."""
    if not (programs / "reprieve-python").exists():
        return
    home, end = Path(env["REPRIEVE_HOME"]), time.monotonic() + 10
    process([str(programs / "reprieve"), "log"], cwd=cwd, env=env)
    while not helper(home):
        if time.monotonic() > end:
            raise Failed("the resident helper was not started")
        time.sleep(0.01)


def wait_until_followed(home: Path, *, seconds: float = 60) -> None:
    """Until the helper has its watches, where it can have them: what comes then is what is usual."""
    end = time.monotonic() + seconds
    while helper(home) and time.monotonic() < end:
        said = (home / "locks" / "helper").read_text()
        if said.startswith(("followed\t", "not followed\t")):
            return
        time.sleep(0.02)


def stop_helper(home: Path) -> None:
    """Nothing that was measured runs any longer."""
    while pid := helper(home):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)


class ReprieveDirect(System):
    """`reprieve checkpoint` and `reprieve rollback --yes`, each a whole Python process."""

    name = "reprieve (process, no helper)"
    bin: Path

    def begin(self) -> None:
        super().begin()
        self.env.update(REPRIEVE_HOME=f"{self.store}/home", REPRIEVE_CONFIG=f"{self.store}/config.toml")
        self.env["REPRIEVE_HELPER"] = "off"
        process([str(self.bin / "reprieve"), "init"], cwd=self.root, env=self.env)

    def save(self) -> tuple[Took, str]:
        took = process([str(self.bin / "reprieve"), "checkpoint"], cwd=self.root, env=self.env)
        return took, took.output.split()[-1]

    def restore(self, save: str) -> Took:
        return process([str(self.bin / "reprieve"), "rollback", save, "--yes"], cwd=self.root, env=self.env)


class ReprieveProcess(ReprieveDirect):
    """The same as it is installed: after the first command the resident helper answers.

    Processor time and memory are the helper's, and not known here; the row without it shows what the work takes.
    """

    name = "reprieve (process)"

    def begin(self) -> None:
        self.close()
        super().begin()
        self.warm()

    def warm(self) -> None:
        self.env["REPRIEVE_HELPER"] = "on"
        start_helper(self.bin, cwd=self.root, env=self.env)

    def close(self) -> None:
        stop_helper(self.store / "home")

    def save(self) -> tuple[Took, str]:
        took, ref = super().save()
        return Took(took.seconds, output=took.output), ref

    def restore(self, save: str) -> Took:
        return Took(super().restore(save).seconds)


WORKER = """
import json, sys, time
sys.stdout.reconfigure(line_buffering=True)
from reprieve.app.finding import open_workspace
from reprieve.model.reporter import Reporter
ws = open_workspace(sys.argv[1], create=True, reporter=Reporter())
print(json.dumps({"ready": True}))
for line in sys.stdin:
    verb, _, ref = line.strip().partition(" ")
    started, cpu = time.perf_counter(), time.process_time()
    if verb == "save":
        ref = ws.checkpoint("").entry.id
    else:
        ws.rollback(ref)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    with open("/proc/self/status") as status:  # not getrusage: see measure.SPAWNER
        peak = next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "ref": ref, "peak": peak}))
"""


class ReprieveLibrary(System):
    """The same calls in a process that runs already."""

    name = "reprieve (library)"
    bin: Path

    def __init__(self, root: Path, store: Path) -> None:
        super().__init__(root, store)
        self._worker: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        self.close()
        super().begin()
        self.env.update(REPRIEVE_HOME=f"{self.store}/home", REPRIEVE_CONFIG=f"{self.store}/config.toml")
        self._worker = subprocess.Popen(
            [str(self.bin / "python"), "-c", WORKER, str(self.root)],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.communicate()
            self._worker = None

    def save(self) -> tuple[Took, str]:
        took, ref = self._ask("save")
        return took, ref

    def restore(self, save: str) -> Took:
        return self._ask(f"restore {save}")[0]

    def _ask(self, request: str) -> tuple[Took, str]:
        assert self._worker is not None and self._worker.stdin is not None
        self._worker.stdin.write(request + "\n")
        self._worker.stdin.flush()
        answer = self._answer()
        took = Took(float(str(answer["seconds"])), float(str(answer["cpu"])), int(str(answer["peak"])))
        return took, str(answer["ref"])

    def _answer(self) -> dict[str, object]:
        assert self._worker is not None and self._worker.stdout is not None
        line = self._worker.stdout.readline()
        if not line:
            raise Failed("the library's process ended; its error is above")
        answer: dict[str, object] = json.loads(line)
        return answer
