"""The store is its owner's alone: 0700 and 0600 from the first instant, and no restore is ever wider than its file."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import Cli
from support.acts import checkpoint, command, reprieve, rollback, script
from support.tree import fingerprint

# Looks at every name below a directory as fast as it can, and notes each that others may read, write or enter.
POLLER = """
import os, signal, stat, sys
root, found_file = sys.argv[1:3]
allowed = int(sys.argv[3], 8)
known = set(sys.argv[4:])
going, found = True, set()
def stop(*_):
    global going
    going = False
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
rounds = 0
while going:
    rounds += 1
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            try:
                st = os.lstat(entry.path)
            except OSError:
                continue
            if stat.S_ISLNK(st.st_mode):
                continue
            if stat.S_ISDIR(st.st_mode):
                waiting.append(entry.path)
            own = allowed | 0o100 if stat.S_ISDIR(st.st_mode) else allowed
            if entry.path not in known and stat.S_IMODE(st.st_mode) & ~own:
                found.add(f"{oct(st.st_mode)} {entry.path}")
with open(found_file, "w") as file: file.write("\\n".join(sorted(found)))
"""


@contextmanager
def watched(root: Path, found: Path, *, known: list[Path] = [], allowed: int = 0o600) -> Iterator[None]:  # noqa: B006
    """Somebody looks all the time whether anything below root is open to others."""
    with script(POLLER, root, found, oct(allowed), *known) as process:
        yield
        process.terminate()
        process.wait()


def open_to_others(root: Path) -> list[str]:
    """Whatever below root has a mode for group or others."""
    return [
        f"{oct(stat.S_IMODE(path.lstat().st_mode))} {path}"
        for path in [root, *root.rglob("*")]
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_WB39_S25_the_store_is_closed_under_any_umask(project: Path, home: Path, tmp_path: Path, umask: int) -> None:
    """Everything in the store is 0600 or 0700 at every moment in which somebody looks, whatever the umask is."""
    home.parent.chmod(0o755)
    found = tmp_path / "found"
    with watched(tmp_path, found, known=[project, *project.rglob("*")]):
        for args in (("init",), ("checkpoint", "one"), ("status",)):
            reprieve(*args, cwd=project, umask=umask)
        (project / ".env").write_text("TOKEN=other\n")
        for args in (("rollback",), ("redo",), ("checkpoint", "two"), ("gc",), ("verify",)):
            reprieve(*args, cwd=project, umask=umask)
    assert [line for line in found.read_text().splitlines() if f" {home}" in line] == []
    assert open_to_others(home) == []
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def created(trace: str) -> Iterator[tuple[str, int]]:
    """(path or name, mode) of everything that an strace log says was created."""
    for line in trace.splitlines():
        match = re.search(r'(?:openat|openat2|open|creat)\((?:[^"]*)"([^"]*)", .*O_CREAT.*?, (0\d*)\)?', line)
        match = match or re.search(r'openat2\([^"]*"([^"]*)", \{flags=[^,]*O_CREAT[^,]*, mode=(0\d*)', line)
        match = match or re.search(r'mkdir(?:at)?\((?:[^"]*)"([^"]*)", (0\d*)\)', line)
        if match and " = -1 " not in line:
            yield match.group(1), int(match.group(2), 8)


def traced(tmp_path: Path, *args: str, cwd: Path, umask: int = 0) -> str:
    """What `reprieve ARGS…` opened for creation, made and changed the mode of."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = tmp_path / "trace"
    calls = "trace=openat,openat2,open,creat,mkdir,mkdirat,chmod,fchmod,fchmodat"
    subprocess.run(
        ["strace", "-f", "-y", "-s", "4096", "-o", log, "-e", calls, *command(*args, umask=umask)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return log.read_text()


def test_S25_nothing_in_the_store_is_ever_created_wider(project: Path, home: Path, tmp_path: Path) -> None:
    """Not one call of the whole life of a store asks the kernel for a mode that others could use, under umask 000."""
    seen = 0
    for args in (("init",), ("checkpoint",), ("rollback",), ("checkpoint", "again"), ("redo",), ("gc",)):
        if args == ("rollback",):
            (project / ".env").write_text("TOKEN=other\n")
        for path, mode in created(traced(tmp_path, *args, cwd=project)):
            if path.startswith("/dev/"):
                continue
            seen += 1
            assert mode & 0o077 == 0, f"{args}: {path} was created with {oct(mode)}"
    assert seen > 3


def test_S26_WB39_a_restored_secret_is_never_wider_on_its_way(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A 0600 file that comes back is at no moment, and under no temporary name, open to others."""
    for i in range(200):
        (project / f"secret-{i}").write_bytes(os.urandom(20_000))
        (project / f"secret-{i}").chmod(0o600)
    before = fingerprint(project)
    checkpoint(cli)
    for i in range(200):
        (project / f"secret-{i}").unlink()
    found = tmp_path / "found"
    with watched(project, found, known=[*project.rglob("*")]):
        reprieve("rollback", cwd=project, umask=0)
    assert found.read_text().splitlines() == []
    assert fingerprint(project) == before


def test_S26_no_call_of_a_restore_opens_a_secret(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Every file that a restore creates, it creates closed, and the final mode is set only once."""
    checkpoint(cli)
    (project / ".env").unlink()
    (project / "tool.sh").unlink()
    (project / "src" / "main.py").write_text("broken\n")
    trace = traced(tmp_path, "rollback", cwd=project)
    for path, mode in created(trace):
        if not path.startswith("/dev/"):
            assert mode & 0o077 == 0, f"{path} was created with {oct(mode)}"
    assert stat.S_IMODE((project / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE((project / "tool.sh").stat().st_mode) == 0o755


def test_WB39_a_mode_that_an_agent_opened_is_closed_again(cli: Cli, project: Path) -> None:
    """A secret that was made readable for others is 0600 again after the rollback, with its inode and bytes kept."""
    checkpoint(cli)
    inode = (project / ".env").stat().st_ino
    (project / ".env").chmod(0o644)
    report = rollback(cli)
    assert stat.S_IMODE((project / ".env").stat().st_mode) == 0o600
    assert (project / ".env").stat().st_ino == inode
    assert report["restored"] == [".env"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_S23_a_store_that_others_can_write_is_refused(cli: Cli, project: Path, home: Path, mode: int) -> None:
    """A store that somebody opened for writing is not trusted, and not written to."""
    checkpoint(cli)
    home.chmod(mode)
    before = fingerprint(home)
    answer = cli("rollback", "--json", check=False)
    assert answer.code in (3, 10), answer
    assert str(home) in answer.json["error"]["message"]
    assert fingerprint(home) == before


@pytest.mark.root
def test_S23_a_store_of_another_user_is_refused(cli: Cli, project: Path, home: Path) -> None:
    """A store that belongs to somebody else is not trusted, and not written to."""
    if os.geteuid() != 0:
        pytest.skip("giving a directory to another user needs root")
    checkpoint(cli)
    for path in [home, *home.rglob("*")]:
        os.chown(path, 4242, 4242)
    before = fingerprint(home)
    answer = cli("checkpoint", "--json", check=False)
    assert answer.code in (3, 10), answer
    assert str(home) in answer.json["error"]["message"]
    assert fingerprint(home) == before


def test_CT23_the_directory_above_the_store_is_not_opened(project: Path, home: Path, tmp_path: Path) -> None:
    """Parents that have to be made for the store are as closed as the store itself."""
    deep = tmp_path / "state" / "of" / "mine"
    reprieve("checkpoint", cwd=project, env={"REPRIEVE_HOME": str(deep)}, umask=0)
    assert open_to_others(tmp_path / "state") == []
