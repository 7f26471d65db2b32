"""The resident helper in tests: the installed command, and a helper that is gone when the test is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.cli.helper.place import running
from support import SRC

BY_HELPER = os.environ.get("REPRIEVE_TEST_HELPER") == "1"


def launched() -> Path:
    """The launcher. Skips where it was not built, and where nobody is served because new rights are forbidden."""
    if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
        pytest.skip("NoNewPrivs is set here: the helper serves nobody")
    path = Path(sys.executable).parent / "reprieve"
    if not path.exists() or path.read_bytes()[:4] != b"\x7fELF":
        pytest.skip("the launcher is not built here")
    return path


def until(what: Callable[[], object], *, seconds: float = 20) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def wait_for_helper(home: Path) -> int:
    """The helper's process number, once it is there; 0 if none has been started."""
    lock = home / "locks" / "helper"
    end = time.monotonic() + 20
    while lock.exists() and not running(str(home)) and _is_locked(lock) and time.monotonic() < end:
        time.sleep(0.01)
    return running(str(home))


def stop_helper(home: Path) -> None:
    """End it, and see that it is gone."""
    pid = wait_for_helper(home)
    if pid:
        os.kill(pid, signal.SIGTERM)
        until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more, or only its name on a list."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _is_locked(path: Path) -> bool:
    import fcntl

    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _is_spare(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "reprieve-spare\n"
    except OSError:
        return False


class Installed:
    """An installation of its own whose way through Python can be counted, and a store for it."""

    def __init__(self, folder: Path, *, source: Path = SRC, home: Path | None = None) -> None:
        self.home = home or folder / "home"
        self.bin = folder / "venv" / "bin"
        self.count = folder / "direct"
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        (packages / "reprieve.pth").write_text(f"{source}\n{ours}\n")
        shutil.copy(launched(), self.bin / "reprieve")
        script = self.bin / "reprieve-python"
        real = (SRC.parent / "bin" / "reprieve").read_text().partition("\n")[2]
        script.write_text(f"#!{self.bin}/python\nopen({str(self.count)!r}, 'a').write('.')\n{real}")
        script.chmod(0o755)
        self.env = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "REPRIEVE_HOME": str(self.home),
            "REPRIEVE_CONFIG": str(folder / "config.toml"),
        }

    def run(self, *words: str | bytes, cwd: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """One command to its end; `env` is added to the usual variables."""
        options.setdefault("input", None if "stdin" in options else b"")
        options["env"] = {**self.env, **options.get("env", {})}
        return subprocess.run(
            [*options.pop("before", ()), self.bin / "reprieve", *words],
            cwd=cwd, timeout=60, check=False, **{"capture_output": "stdout" not in options, **options},
        )  # fmt: skip

    def begin(self, *words: str, cwd: Path, **options: Any) -> subprocess.Popen[bytes]:
        """One command that is not waited for."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen([self.bin / "reprieve", *words], cwd=cwd, env=self.env, **{**pipes, **options})

    @property
    def directs(self) -> int:
        """How many commands were done by a Python of their own."""
        return self.count.stat().st_size if self.count.exists() else 0

    @property
    def pid(self) -> int:
        return running(str(self.home))

    def warm(self, cwd: Path) -> int:
        """Have a helper; its process number. 0 where it is switched off."""
        done = self.run("checkpoint", cwd=cwd)
        assert done.returncode == 0, done.stderr
        pid = wait_for_helper(self.home)
        assert pid or self.env.get("REPRIEVE_HELPER") == "off"
        return pid

    def child(self, pid: int, cwd: Path) -> int:
        """The process that does a command there for someone, once there is one (and not one that only said its pid)."""
        found: list[int] = []

        def look() -> bool:
            for child in self.children(pid):
                try:
                    found.extend([child] if os.readlink(f"/proc/{child}/cwd") == str(cwd) else [])
                except OSError:
                    continue
            return bool(found)

        until(look)
        return found[0]

    def children(self, pid: int) -> set[int]:
        """The processes that work for the helper now; not the spare one, which waits."""
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(child) for child in found if not _is_spare(child)}

    def close(self) -> None:
        stop_helper(self.home)
