"""The resident helper: how it comes, stays and goes, with many callers or none."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from reprieve.cli.helper.place import running
from support import SRC
from support.helper import Installed, is_gone, until, wait_for_helper


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    yield one
    one.close()


def test_fifty_at_once_are_all_answered(installed: Installed, project: Path) -> None:
    installed.warm(project)
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda _: installed.run("status", "--json", cwd=project), range(50)))
    assert {one.returncode for one in done} == {0}
    assert all(json.loads(one.stdout)["ok"] for one in done)


def test_of_many_first_commands_one_starts_it(installed: Installed, project: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: installed.run("checkpoint", cwd=project), range(8)))
    assert {one.returncode for one in done} == {0}
    pid = wait_for_helper(installed.home)
    assert pid
    until(lambda: _servers(installed.home) == {pid})  # a command's process looks like its helper until it is gone
    time.sleep(0.3)  # a second one would have come up by now
    assert _servers(installed.home) == {pid}


def _servers(home: Path) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            name = (path.parent / "comm").read_text()
            if b"reprieve.cli.helper.server" in words and str(home).encode() in words and "spare" not in name:
                found.add(int(path.parent.name))
    return found


def test_it_ends_when_nobody_asks(installed: Installed, project: Path) -> None:
    installed.env["REPRIEVE_HELPER_IDLE"] = "1"
    pid = installed.warm(project)
    until(lambda: is_gone(pid))
    assert not (installed.home / "helper").exists()
    assert installed.run("status", cwd=project).returncode == 0
    assert wait_for_helper(installed.home) not in (0, pid)


def test_nothing_of_the_callers_stays_open(installed: Installed, project: Path) -> None:
    """An agent that reads a pipe to its end does not wait for the helper."""
    read, write = os.pipe()
    with open(read, "rb") as reader:
        done = installed.run("checkpoint", cwd=project, pass_fds=(write,))
        os.close(write)
        assert done.returncode == 0
        assert reader.read() == b""
    pid = wait_for_helper(installed.home)
    assert pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) == pid
    own = {str(installed.home), str(installed.home / "locks" / "helper"), "/dev/null"}
    until(lambda: {link for link in _links(pid) if link.startswith("/")} == own)  # it still loads what it will need
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {name.split(b"=")[0] for name in variables if name} == {b"HOME", b"PATH", b"LANG"}


def _links(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            found.add(os.readlink(path))
    return found


def test_a_store_that_is_deleted_takes_the_helper_along(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    shutil.rmtree(installed.home)
    assert installed.run("checkpoint", cwd=project).returncode == 0
    assert installed.directs == 2
    assert wait_for_helper(installed.home) not in (0, pid)
    os.kill(pid, signal.SIGTERM)  # it would have looked after half a minute
    until(lambda: is_gone(pid))
    assert running(str(installed.home))  # and did not take the new one's socket


def spare_of(pid: int) -> int:
    """The fork that waits for the next command and has the store open; 0 as long as there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next((int(one) for one in children if any(link.endswith("/store.db") for link in _links(int(one)))), 0)


def test_the_next_command_finds_the_store_open_and_nobody_locked_out(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    assert installed.run("checkpoint", cwd=project).returncode == 0  # asks about the tree, so it is known where
    until(lambda: spare_of(pid))
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    assert not [lock for lock in locks if lock[4] == str(spare_of(pid))]
    assert installed.run("checkpoint", "seen", cwd=project).returncode == 0
    assert installed.directs == 1
    assert b"seen" in installed.run("log", cwd=project).stdout


def test_a_store_that_was_exchanged_under_a_waiting_fork_is_not_the_one_that_is_used(
    installed: Installed, project: Path
) -> None:
    pid = installed.warm(project)
    assert installed.run("checkpoint", cwd=project).returncode == 0
    until(lambda: spare_of(pid))
    old = installed.home / "store.db"
    kept = os.open(old, os.O_RDONLY)
    shutil.copy(old, installed.home / "tmp" / "copy")
    os.rename(installed.home / "tmp" / "copy", old)
    before = os.fstat(kept)
    assert installed.run("checkpoint", "into the new one", cwd=project).returncode == 0
    assert installed.directs == 1
    assert os.fstat(kept).st_mtime_ns == before.st_mtime_ns
    os.close(kept)
    assert b"into the new one" in installed.run("log", cwd=project, env={"REPRIEVE_HELPER": "off"}).stdout


def test_changed_code_is_not_run_from_memory(tmp_path: Path, project: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SRC, source, ignore=shutil.ignore_patterns("__pycache__"))
    one = Installed(tmp_path / "own", source=source)
    try:
        pid = one.warm(project)
        assert one.run("status", cwd=project).returncode == 0 and one.directs == 1
        version = source / "reprieve" / "version.py"
        version.write_text(version.read_text() + "\n# changed\n")
        assert one.run("status", cwd=project).returncode == 0 and one.directs == 2
        until(lambda: is_gone(pid))
        assert one.run("status", cwd=project).returncode == 0 and one.directs == 3
        assert wait_for_helper(one.home) not in (0, pid)
    finally:
        one.close()


def test_another_installation_with_the_same_store_does_its_own(installed: Installed, project: Path) -> None:
    installed.warm(project)
    other = Installed(installed.home.parent / "other")
    other.env["REPRIEVE_HOME"] = str(installed.home)
    assert other.run("status", cwd=project).returncode == 0
    assert other.directs == 1


def test_a_store_with_a_long_path_has_one_too(tmp_path: Path, project: Path) -> None:
    one = Installed(tmp_path / "own", home=tmp_path / ("deep" * 30) / ("deeper" * 20))
    try:
        one.warm(project)
        assert one.run("status", cwd=project).returncode == 0 and one.directs == 1
    finally:
        one.close()


def test_limits_are_the_callers(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    launch = [sys.executable, str(Path(__file__).parents[1] / "support" / "launch.py"), json.dumps({"files": 100})]
    command = subprocess.Popen(
        [*launch, installed.bin / "reprieve", "-q", "hook", "claude-code"], cwd=project, env=installed.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    child = installed.child(pid, project)
    until(lambda: resource.prlimit(child, resource.RLIMIT_NOFILE) == (100, 100))
    command.communicate(b"{}", timeout=20)
    assert installed.directs == 1
