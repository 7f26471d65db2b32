"""A fork server: the engine is imported once, each command runs in a fork of it, with a fault armed or none.

Client side (in the test process): `ForkServer(entry)` starts this file as a program under LD_PRELOAD=faultsim.so and
talks JSON lines with it. Server side (`_serve`): single-threaded, forks per command, arms the fault in the child,
waits, and says what became of it: exit status, what it printed, how many calls were counted, whether and where the
fault fired.

A fork is cheap to make and dear to use: each page that it touches is copied first, 10 ms of processor time where the
command itself needs 1 to 4. What only sets a world up or looks at what is left may therefore be asked of one fork that
stays (`run_resident`); what is struck, and what has to find its way afterwards, is a process of its own.

The numbers come from a page shared with the child, so they are known even when the child was killed in the middle.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import mmap
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODES = {"kill": 0, "kill_after": 1, "errno": 2, "errno_from": 3, "short": 4, "stop": 5, "signal": 6}

WRITE, CREATE, MOVE, REMOVE, ATTR, SYNC, READ, LOOK, NET = (1 << n for n in range(9))
MUTATING = WRITE | CREATE | MOVE | REMOVE | ATTR | SYNC
SPACE = WRITE | CREATE  # calls that a full disk makes fail

_RECORDS, _CALL, _TEXT, _PATH = 8192, 24, 120, 256


# --- what a test asks for and gets back


@dataclass(frozen=True)
class Fault:
    """What is to go wrong: at the `at`-th call of the classes in `mask`. at=-1 counts only."""

    mode: str = "kill"
    at: int = -1
    errno: int = 0  # for errno and errno_from; the signal's number for signal
    mask: int = MUTATING
    record: bool = False  # keep the name and path of every counted call

    def __str__(self) -> str:
        code = {"signal": lambda: signal.Signals(self.errno).name}.get(self.mode, lambda: errno.errorcode[self.errno])
        return f"{self.mode}{' ' + code() if self.errno else ''} at call {self.at}"


@dataclass(frozen=True)
class Ran:
    """What became of one command."""

    argv: tuple[str, ...]
    code: int  # exit code; minus the signal's number if it died of one
    out: str
    err: str
    seen: int  # calls counted while armed
    fired: int  # how often the fault struck
    call: str  # the call that it struck first, and its path
    path: str
    calls: tuple[tuple[str, str], ...] = ()  # with Fault.record
    timed_out: bool = False

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        return json.loads(self.out)

    def __str__(self) -> str:
        struck = f"; fault struck {self.call} {self.path}" if self.fired else ""
        late = "; TIMED OUT" if self.timed_out else ""
        return f"{' '.join(self.argv)} -> {self.code}{late}{struck}\n  out: {self.out[-400:]}\n  err: {self.err[-800:]}"


@dataclass
class ForkServer:
    """Runs commands in forks of one warm process.

    `entry` is "module:function" of a function that takes argv and returns an exit code. `paths` are put in front of
    sys.path of the server.
    """

    entry: str = "reprieve.cli.main:main"
    paths: Sequence[str] = ()
    preload: bool = True
    _process: subprocess.Popen[bytes] = field(init=False, repr=False)
    _resident: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        ours, theirs = os.pipe(), os.pipe()
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*self.paths, os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",
        }
        if self.preload:
            env["LD_PRELOAD"] = str(faultsim())
        self._process = subprocess.Popen(
            [sys.executable, "-u", __file__, self.entry, str(ours[0]), str(theirs[1])],
            stdin=subprocess.DEVNULL,
            pass_fds=(ours[0], theirs[1]),
            env=env,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = os.fdopen(ours[1], "wb"), os.fdopen(theirs[0], "rb")
        hello = self._read()
        if "error" in hello:
            self.close()
            raise ImportError(hello["error"])

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | str = "/",
        env: Mapping[str, str] | None = None,
        fault: Fault | None = None,
        roots: Sequence[Path | str] = (),
        plant: str = "",
        timeout: float = 60.0,
    ) -> Ran:
        """Run a command in a fork and wait for its end. `roots` bound what READ and LOOK faults may strike."""
        pid = self.spawn(argv, cwd=cwd, env=env, fault=fault, roots=roots, plant=plant)
        return self.wait(pid, timeout=timeout)

    def run_resident(
        self, argv: Sequence[str], *, cwd: Path | str = "/", env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> Ran:
        """Run a command, without a fault, in the fork that stays; one that dies or takes too long has a successor."""
        if not self._resident:
            self._resident = int(self._ask(op="reside")["pid"])
        answer = self._ask(
            op="tell", pid=self._resident, argv=list(argv), cwd=str(cwd), env=dict(env or {}), timeout=timeout
        )
        if answer.pop("ended"):
            self._resident = 0
        return Ran(argv=tuple(argv), seen=0, fired=0, call="", path="", **answer)

    def dismiss_resident(self) -> None:
        """End the fork that stays, if there is one: the next one knows nothing of what was."""
        if self._resident:
            self._ask(op="dismiss", pid=self._resident)
            self._resident = 0

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | str = "/",
        env: Mapping[str, str] | None = None,
        fault: Fault | None = None,
        roots: Sequence[Path | str] = (),
        plant: str = "",
    ) -> int:
        """Start a command in a fork and go on; its pid."""
        answer = self._ask(
            op="spawn",
            argv=list(argv),
            cwd=str(cwd),
            env=dict(env or {}),
            fault=vars(fault) if fault else None,
            roots=[str(r) for r in roots],
            plant=plant,
        )
        return int(answer["pid"])

    def wait(self, pid: int, *, timeout: float = 60.0) -> Ran:
        """Wait for a command's end; kill it when it takes too long (and say so)."""
        answer = self._ask(op="wait", pid=pid, timeout=timeout)
        answer["argv"] = tuple(answer["argv"])
        answer["calls"] = tuple((c, p) for c, p in answer["calls"])
        return Ran(**answer)

    def wait_stopped(self, pid: int, *, timeout: float = 60.0) -> bool:
        """Wait until the command has stopped itself (Fault mode "stop"); False if it ended instead."""
        return bool(self._ask(op="wait_stopped", pid=pid, timeout=timeout)["stopped"])

    def close(self) -> None:
        """End the server."""
        self._to.close()
        self._from.close()
        self._process.wait(10)

    def _ask(self, **request: Any) -> dict[str, Any]:
        self._to.write(json.dumps(request).encode() + b"\n")
        self._to.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _read(self) -> dict[str, Any]:
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the fork server died: {self._process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


_built: list[Path] = []


def faultsim() -> Path:
    """The injector, compiled once per process from faultsim.c."""
    if not _built:
        source = Path(__file__).with_name("faultsim.c")
        out = Path(tempfile.mkdtemp(prefix="faultsim-")) / "faultsim.so"
        subprocess.run(
            ["gcc", "-O2", "-Wno-misleading-indentation", "-shared", "-fPIC", "-o", out, source, "-ldl"], check=True
        )
        _built.append(out)
    return _built[0]


# --- the server


class _Page(ctypes.Structure):
    _fields_ = [
        ("seen", ctypes.c_long),
        ("fired", ctypes.c_long),
        ("call", ctypes.c_char * _CALL),
        ("path", ctypes.c_char * _PATH),
        ("log", (ctypes.c_char * (_CALL + _TEXT)) * _RECORDS),
    ]


@dataclass
class _Child:
    argv: list[str]
    out: int
    err: int
    page: Any
    pidfd: int


@dataclass
class _Resident:
    to: socket.socket
    out: int
    err: int


def _serve(entry: str, read_fd: int, write_fd: int) -> None:
    os.set_inheritable(read_fd, False)
    os.set_inheritable(write_fd, False)
    asks, answers = os.fdopen(read_fd, "rb"), os.fdopen(write_fd, "wb")

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what).encode() + b"\n")
        answers.flush()

    try:
        module, _, name = entry.partition(":")
        main = getattr(importlib.import_module(module), name)
        if "reprieve" in sys.modules:
            _warm()
        lib = ctypes.CDLL(None) if os.environ.get("LD_PRELOAD") else None
        os.environ.pop("LD_PRELOAD", None)  # programs that the engine starts are not under test
        gc.collect()
        gc.freeze()
    except BaseException:
        answer(error=traceback.format_exc())
        return
    answer(ready=True)
    children: dict[int, _Child] = {}
    residents: dict[int, _Resident] = {}
    for line in asks:
        request = json.loads(line)
        try:
            if request["op"] == "spawn":
                pid, child = _spawn(main, lib, request)
                children[pid] = child
                answer(pid=pid)
            elif request["op"] == "wait":
                answer(**_wait(request["pid"], children.pop(request["pid"]), request["timeout"]))
            elif request["op"] == "wait_stopped":
                answer(stopped=_wait_stopped(request["pid"], request["timeout"]))
            elif request["op"] == "reside":
                pid, resident = _reside(main)
                residents[pid] = resident
                answer(pid=pid)
            elif request["op"] == "tell":
                told = _tell(request["pid"], residents[request["pid"]], request)
                if told["ended"]:
                    _part(residents.pop(request["pid"]))
                answer(**told)
            elif request["op"] == "dismiss":
                _part(residents.pop(request["pid"]))
                os.waitpid(request["pid"], 0)
                answer(dismissed=True)
        except BaseException:
            answer(error=traceback.format_exc())
    for pid in (*children, *residents):
        os.kill(pid, signal.SIGKILL)


def _warm() -> None:
    """Import what commands import late, so that a child's own calls are those of the command alone."""
    late = ["json", "re", "hashlib", "sqlite3", "tomllib", "fnmatch", "secrets", "shutil", "subprocess", "datetime",
            "difflib", "textwrap", "traceback", "threading", "concurrent.futures.thread", "pathspec", "platformdirs",
            "platformdirs.unix", "backports.zstd", "compression.zstd"]  # fmt: skip
    root = importlib.import_module("reprieve")
    names = [m.name for m in pkgutil.walk_packages(root.__path__, "reprieve.") if not m.name.endswith("__main__")]
    # no command that is struck needs these: with the MCP SDK a server is 87 MB instead of 42, and each fork copies its
    # page table
    late += [name for name in names if name.split(".")[1] not in ("frameworks", "mcp", "testing")]
    for name in late:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    tasks = os.listdir("/proc/self/task")
    assert len(tasks) == 1, f"importing the engine starts threads: {tasks}"


def _spawn(main: Any, lib: Any, request: dict[str, Any]) -> tuple[int, _Child]:
    memory = mmap.mmap(-1, ctypes.sizeof(_Page))
    page = _Page.from_buffer(memory)
    out, err = os.memfd_create("out"), os.memfd_create("err")
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.dup2(out, 1)
            os.dup2(err, 2)
            code = _child(main, lib, page, request)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
        finally:
            if lib:
                lib.fs_disarm()
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code & 0xFF)
    return pid, _Child(request["argv"], out, err, page, os.pidfd_open(pid))


def _reside(main: Any) -> tuple[int, _Resident]:
    ours, theirs = socket.socketpair()
    out, err = os.memfd_create("out"), os.memfd_create("err")
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            os.dup2(out, 1)
            os.dup2(err, 2)
            _stay(main, theirs)
        finally:
            os._exit(0)
    theirs.close()
    return pid, _Resident(ours, out, err)


def _stay(main: Any, asked: socket.socket) -> None:
    """Run what is asked for until nobody asks any more."""
    environ = dict(os.environ)
    with asked.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            try:
                os.chdir(request["cwd"])
                os.environ.update(request["env"])
                code = int(main(request["argv"]) or 0)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                traceback.print_exc()
                code = 70
            sys.stdout.flush()
            sys.stderr.flush()
            os.environ.clear()
            os.environ.update(environ)
            os.chdir("/")
            asked.sendall(b"%d\n" % (code & 0xFF))


def _tell(pid: int, resident: _Resident, request: dict[str, Any]) -> dict[str, Any]:
    for fd in (resident.out, resident.err):
        os.truncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)  # the position is shared with the fork
    words = {key: request[key] for key in ("argv", "cwd", "env")}
    resident.to.settimeout(request["timeout"])
    said, timed_out = b"", False
    try:
        resident.to.sendall(json.dumps(words).encode() + b"\n")
        said = resident.to.recv(16)
    except TimeoutError:
        timed_out = True
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended: its status says how
    code = int(said) if said else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    out, err = (os.pread(fd, os.fstat(fd).st_size, 0) for fd in (resident.out, resident.err))
    return {
        "code": code,
        "out": out.decode("utf-8", "surrogateescape"),
        "err": err.decode("utf-8", "surrogateescape"),
        "timed_out": timed_out,
        "ended": not said,
    }


def _part(resident: _Resident) -> None:
    resident.to.close()
    os.close(resident.out)
    os.close(resident.err)


def _child(main: Any, lib: Any, page: Any, request: dict[str, Any]) -> int:
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    if request["plant"]:
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        importlib.import_module("plants").plant(request["plant"])
    fault = request["fault"]
    if fault and lib:
        # or a busy moment of the machine would make it open rooms, and the calls would be other ones than were counted
        importlib.import_module("reprieve.files.stage")._SLOW_NS = 1 << 60
        lib.fs_share(ctypes.byref(page))
        for root in request["roots"]:
            lib.fs_root(os.fsencode(os.path.realpath(root)))
        lib.fs_arm(
            ctypes.c_long(fault["at"]), MODES[fault["mode"]], fault["errno"], fault["mask"], int(fault["record"])
        )
    code = main(request["argv"])
    return int(code or 0)


def _wait(pid: int, child: _Child, timeout: float) -> dict[str, Any]:
    ready, _, _ = select.select([child.pidfd], [], [], timeout)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(child.pidfd)
    page = child.page
    calls = []
    for n in range(min(page.seen, _RECORDS)):
        raw = bytes(page.log[n].raw) if hasattr(page.log[n], "raw") else bytes(page.log[n])
        name, path = raw[:_CALL].split(b"\0")[0], raw[_CALL:].split(b"\0")[0]
        if not name:
            break
        calls.append((name.decode(), path.decode("utf-8", "backslashreplace")))
    texts = []
    for fd in (child.out, child.err):
        size = os.fstat(fd).st_size
        texts.append(os.pread(fd, size, 0).decode("utf-8", "surrogateescape"))
        os.close(fd)
    return {
        "argv": child.argv,
        "code": os.waitstatus_to_exitcode(status),
        "out": texts[0],
        "err": texts[1],
        "seen": page.seen,
        "fired": page.fired,
        "call": page.call.decode(),
        "path": page.path.decode("utf-8", "backslashreplace"),
        "calls": calls,
        "timed_out": not ready,
    }


def _wait_stopped(pid: int, timeout: float) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        info = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if info is not None:
            return info.si_code == os.CLD_STOPPED
        time.sleep(0.001)
    raise TimeoutError(f"{pid} neither stopped nor ended in {timeout} s")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
