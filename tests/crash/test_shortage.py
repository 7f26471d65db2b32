"""Disks that fill up or fail, limits that are hit, calls that do half: told plainly, survived, repeatable.

The first part strikes calls one by one with the fault injector; the second uses real small disks and real limits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reprieve.app.finding import open_workspace
from reprieve.errors import StoreFailed
from reprieve.files import native
from reprieve.model.reporter import Reporter
from support import SRC, power, worlds
from support.forkserver import LOOK, MUTATING, READ, SPACE, WRITE, Fault, ForkServer, Ran
from support.scenes import SCENES, Facts, is_nearly
from support.site import Site, is_root
from support.sweep import Tally, count, points_of, sweep

Counted = Callable[[Tally], None]

COMMANDS = ("first", "incremental", "rollback", "revert", "redo", "gc", "prune", "forget", "init")
MOVES = ("rollback", "revert", "redo")
OTHERS = tuple(name for name in COMMANDS if name not in MOVES)
READERS = ("first", "incremental", "rollback", "gc")
ODD_CODES = ("EINTR", "EAGAIN", "EDQUOT", "EFBIG", "EROFS", "EMFILE")
LIMIT = int(os.environ.get("REPRIEVE_POINTS", "50"))  # points of one command and fault; beyond that evenly sampled


class Plan(NamedTuple):
    """Which commands are struck how, and at how many points each (as a share of LIMIT)."""

    commands: tuple[str, ...]
    fault: Fault
    share: float = 1.0


PLANS = {
    "enospc once": Plan(COMMANDS, Fault("errno", errno=errno.ENOSPC, mask=MUTATING)),
    "enospc from": Plan(COMMANDS, Fault("errno_from", errno=errno.ENOSPC, mask=SPACE)),
    "all from": Plan(COMMANDS, Fault("errno_from", errno=errno.ENOSPC, mask=MUTATING), 0.4),
    "eio once": Plan(COMMANDS, Fault("errno", errno=errno.EIO, mask=MUTATING)),
    "eio reading": Plan(COMMANDS, Fault("errno", errno=errno.EIO, mask=READ), 0.5),
    "eio looking": Plan(READERS, Fault("errno", errno=errno.EIO, mask=LOOK), 0.5),
    "short writes": Plan(COMMANDS, Fault("short", mask=WRITE), 0.7),
    "short reads": Plan(READERS, Fault("short", mask=READ), 0.5),
    **{
        code: Plan(("first", "rollback"), Fault("errno", errno=getattr(errno, code), mask=MUTATING), 0.12)
        for code in ODD_CODES
    },
}


def points(server: ForkServer, name: str, plan: Plan) -> list[int]:
    total = count(server, SCENES[name], plan.fault).seen
    return points_of(total, shard=0, shards=1, limit=max(2, round(LIMIT * plan.share)))


def strike(server: ForkServer, name: str, kind: str) -> Tally:
    plan = PLANS[kind]
    assert name in plan.commands
    return sweep(server, SCENES[name], plan.fault, points(server, name, plan))


@pytest.mark.parametrize("name", COMMANDS)
def test_C13_enospc_once_at_every_call(server: ForkServer, name: str, counted: Counted) -> None:
    """The error names the disk; the tree is untouched or complete; the command works again."""
    counted(strike(server, name, "enospc once"))


@pytest.mark.parametrize("name", OTHERS)
def test_C14_enospc_from_every_call_on(server: ForkServer, name: str, counted: Counted) -> None:
    """A full disk that stays full; when there is room again the same command works."""
    counted(strike(server, name, "enospc from"))


@pytest.mark.parametrize("name", MOVES)
def test_C14_C24_the_disk_is_full_from_every_call_of_a_move_on(server: ForkServer, name: str, counted: Counted) -> None:
    """Full after the plan was made: nothing is changed, or it is finished; no file is ever half-way."""
    counted(strike(server, name, "enospc from"))


@pytest.mark.parametrize("name", COMMANDS)
def test_C14_every_change_fails_from_every_call_on(server: ForkServer, name: str, counted: Counted) -> None:
    """Worse than a full disk: nothing at all can be changed any more, not even taken back."""
    counted(strike(server, name, "all from"))


@pytest.mark.parametrize("name", COMMANDS)
def test_C15_eio_once_at_every_change(server: ForkServer, name: str, counted: Counted) -> None:
    """A failed fsync is never taken for success: what is acknowledged is whole."""
    counted(strike(server, name, "eio once"))


@pytest.mark.parametrize("name", COMMANDS)
def test_C15_eio_once_at_every_read(server: ForkServer, name: str, counted: Counted) -> None:
    """A file that can't be read is named; a store that can't be read is told."""
    counted(strike(server, name, "eio reading"))


@pytest.mark.parametrize("name", READERS)
def test_C15_eio_once_at_every_look(server: ForkServer, name: str, counted: Counted) -> None:
    """stat, open and listing fail: a path that could not be looked at is never taken for deleted."""
    counted(strike(server, name, "eio looking"))


@pytest.mark.parametrize("name", COMMANDS)
def test_C17_short_writes_at_every_call(server: ForkServer, name: str, counted: Counted) -> None:
    """A write that does half is continued."""
    counted(strike(server, name, "short writes"))


@pytest.mark.parametrize("name", READERS)
def test_C17_short_reads_at_every_call(server: ForkServer, name: str, counted: Counted) -> None:
    """A read that does half is continued."""
    counted(strike(server, name, "short reads"))


@pytest.mark.parametrize("code", ODD_CODES)
@pytest.mark.parametrize("name", ("first", "rollback"))
def test_C16_other_errors_at_sampled_calls(server: ForkServer, name: str, code: str, counted: Counted) -> None:
    """Each is told plainly and leaves everything sound."""
    counted(strike(server, name, code))


def test_the_fault_sweeps_have_at_least_2000_points(server: ForkServer) -> None:
    """The promise of the sweeps above, counted."""
    sums = {kind: sum(len(points(server, n, plan)) for n in plan.commands) for kind, plan in PLANS.items()}
    print(sums, sum(sums.values()))
    assert sum(sums.values()) >= 2000


# --- real disks and real limits


SIZES = [*(1500 + 300 * n for n in range(15)), 100_000]  # KiB; only the last has room for the store's reserve

needs_loop = pytest.mark.skipif(bool(power.missing()), reason=power.missing() or "possible")


def fill(site: Site, *, limit: int = 60) -> Ran:
    """Add files of growing size and take checkpoints until one fails; that one."""
    rnd = random.Random(18)
    for n in range(limit):
        (site.tree / f"fill-{n}").write_bytes(rnd.randbytes(60_000 + 20_000 * n))
        ran = site.run("checkpoint", f"fill {n}", "--json")
        if ran.code != 0:
            (site.tree / f"fill-{n}").unlink()
            return ran
    raise AssertionError("the disk never became full")


def use_up(junk: Path) -> None:
    """Take what room the disk still has, to the last byte."""
    with open(junk, "wb", buffering=0) as file:
        for size in (65536, 1024, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def told_plainly(ran: Ran, *words: str, codes: tuple[int, ...] = (10,)) -> None:
    assert ran.code in codes, ran
    text = (ran.out + ran.err).lower()
    assert "traceback" not in text and any(word in text for word in words), ran


@pytest.mark.root
@needs_loop
@pytest.mark.parametrize("block", (1024, 2048, 4096))
def test_C18_a_real_full_disk_of_16_sizes(server: ForkServer, block: int) -> None:
    """No signal, a plain message; what was acknowledged is there; small things still work; room made helps."""
    filled = 0
    for size in SIZES:
        disk = power.Disk(
            worlds.scratch_base(), size=size << 10, options=("-b", str(block), "-m", "0", "-O", "^has_journal")
        )
        disk.mount()
        try:
            with Site(server) as site:
                site.home = disk.mount_point / "home"
                (disk.mount_point / "spacer").write_bytes(bytes(400_000))  # what someone can delete later
                site.tree.mkdir()
                (site.tree / "small").write_text("small\n")
                made = site.run("checkpoint", "base", "--json")
                if made.code != 0:
                    told_plainly(made, "full", "space", codes=(3, 10))
                    continue
                has_reserve = (site.home / "ballast").exists()
                assert has_reserve == (size == SIZES[-1])
                if has_reserve:
                    use_up(disk.mount_point / "junk")
                else:
                    told_plainly(fill(site), "full", "space")
                    use_up(disk.mount_point / "junk")
                filled += 1
                full = site.look()
                where = f"block {block}, {size} KiB"
                for argv in (("status",), ("log",), ("verify",)):
                    ran = site.run(*argv)
                    assert ran.code in (0, 1), f"{where}: {ran}"
                (site.tree / "small").write_text("changed\n")
                changed = site.look()
                back = site.run("revert", "small", "--to", "base")
                if has_reserve or back.code == 0:
                    assert back.code == 0, f"{where}: a small revert on a full disk: {back}"
                    assert site.differs(full, ignore=["dir_mtime_ns"]) == []
                else:
                    told_plainly(back, "full", "space")
                    assert site.differs(changed) == []
                if not has_reserve:
                    (disk.mount_point / "spacer").unlink()
                    for path in site.tree.glob("fill-*"):
                        path.unlink()
                    site.ok("checkpoint", "lean")
                for argv in (("prune", "--keep-last", "1", "--keep-days", "0", "--yes"), ("gc",)):
                    ran = site.run(*argv)
                    assert ran.code == 0, f"{where}: {ran}"
                (disk.mount_point / "junk").unlink(missing_ok=True)
                ran = site.run("checkpoint", "after")
                assert ran.code == 0, f"{where}: there is room again: {ran}"
                assert site.run("verify").code == 0
        finally:
            disk.close()
    assert filled >= 12


@pytest.mark.root
@needs_loop
def test_C18_a_disk_without_inodes(server: ForkServer) -> None:
    """Room for bytes but not for names: told plainly, and it goes on when there are names again."""
    disk = power.Disk(worlds.scratch_base(), size=8 << 20, options=("-N", "64", "-m", "0"))
    disk.mount()
    try:
        with Site(server) as site:
            site.home = disk.mount_point / "home"
            worlds.fifty(site.tree)
            site.ok("init")
            id = site.checkpoint("base")
            tree = site.look()
            junk = disk.mount_point / "junk"
            junk.mkdir()
            taken = 0
            try:
                while True:
                    (junk / str(taken)).touch()
                    taken += 1
            except OSError as error:
                assert error.errno == errno.ENOSPC
            worlds.wreck(site.tree)
            ran = site.run("checkpoint", "x", "--json")
            if ran.code != 0:
                told_plainly(ran, "full", "space")
            back = site.run("rollback", id)
            if back.code == 0:
                assert site.differs(tree) == []
            else:
                told_plainly(back, "full", "space")
            shutil.rmtree(junk)
            site.ok("checkpoint", "y")
            site.ok("rollback", id)
            assert site.differs(tree) == []
            assert site.run("verify").code == 0
    finally:
        disk.close()


@pytest.mark.root
@pytest.mark.skipif(not is_root(), reason="mounting a tmpfs needs root")
def test_C19_a_tmpfs_of_one_megabyte_and_50_inodes_as_store(site: Site) -> None:
    """Too small for the tree: refused cleanly, nothing half-made is trusted."""
    small = site.base / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=50", "none", small], check=True)
    try:
        site.home = small / "home"
        worlds.fifty(site.tree)
        (site.tree / "large").write_bytes(random.Random(19).randbytes(3 << 20))
        ran = site.run("checkpoint", "x", "--json")
        told_plainly(ran, "full", "space", codes=(3, 10))
        (site.tree / "large").unlink()
        tree = site.look()
        id = site.checkpoint("fits")
        worlds.clear(site.tree)
        site.ok("rollback", id)
        assert site.differs(tree) == []
        assert site.run("verify").code == 0
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.root
@needs_loop
def test_C24_a_real_full_disk_inside_rollback(server: ForkServer) -> None:
    """The tree's disk has no room for what the rollback must bring back: found before anything is changed."""
    disk = power.Disk(worlds.scratch_base(), size=12 << 20, options=("-m", "0"))
    disk.mount()
    try:
        with Site(server) as site:
            site.tree = disk.mount_point / "tree"
            worlds.fifty(site.tree)
            (site.tree / "large").write_bytes(random.Random(24).randbytes(3 << 20))
            site.ok("init")
            id = site.checkpoint("base")
            target = site.look()
            worlds.wreck(site.tree)
            (site.tree / "large").unlink()
            junk = disk.mount_point / "junk"
            use_up(junk)
            start = site.look()
            ran = site.run("rollback", id)
            told_plainly(ran, "full", "space", codes=(5, 10))
            assert site.differs(start) == []
            junk.unlink()
            site.ok("rollback", id)
            assert site.differs(target) == []
            site.ok("redo")
            assert site.differs(start) == []
    finally:
        disk.close()


LIMITED = """
import resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
from reprieve.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


def limited(site: Site, limit: str, number: int, *argv: str) -> Ran:
    env = {**os.environ, **site.env(), "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, limit, str(number), *argv],
        cwd=site.tree,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(argv, done.returncode, done.stdout, done.stderr, 0, 0, "", "")


@pytest.mark.parametrize(
    ("limit", "number"), (("RLIMIT_FSIZE", 100 * 1024), ("RLIMIT_NOFILE", 12), ("RLIMIT_NOFILE", 20))
)
@pytest.mark.parametrize("command", ("checkpoint", "rollback"))
def test_C16_limits_of_the_process(site: Site, limit: str, number: int, command: str) -> None:
    """ulimit -f and ulimit -n: done, or told plainly and sound; the same command works without the limit."""
    worlds.fifty(site.tree)
    (site.tree / "large").write_bytes(random.Random(16).randbytes(500_000))
    site.ok("init")
    id = site.checkpoint("base")
    target = site.look()
    worlds.wreck(site.tree)
    (site.tree / "large").write_bytes(random.Random(17).randbytes(500_000))
    start = site.look()
    argv = ("checkpoint", "x") if command == "checkpoint" else ("rollback", id)
    ran = limited(site, limit, number, *argv)
    if limit == "RLIMIT_FSIZE":
        assert ran.code != 0, ran
    if ran.code != 0:
        told_plainly(ran, "file", "limit", "descriptors", codes=(3, 5, 6, 10, 11))
        assert is_nearly(site, Facts(argv, start, target))
        assert site.run("status").code in (0, 1)
        assert site.differs(start) == [] or site.differs(target) == []
    site.ok(*argv)
    site.ok("rollback", id)
    assert site.differs(target) == []
    assert site.run("verify").code == 0


@pytest.mark.parametrize("code", (errno.EMFILE, errno.ENFILE, errno.ENOMEM))
def test_C16_what_we_are_short_of_leaves_no_file_out(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file that could not be opened for want of descriptors is not one that cannot be read: nothing goes on."""
    ws = open_workspace(str(project), create=True, reporter=Reporter())
    ws.checkpoint("all")
    (project / "README.md").write_text("wrecked")
    honest = native.read_rows

    def short(*args: Any) -> Any:
        data, parts, row, problems = honest(*args)
        return data, [], row, [*problems, *((part[0], code) for part in parts)]

    with monkeypatch.context() as patch:
        patch.setattr(native, "read_rows", short)
        for act in (ws.rollback, lambda: ws.checkpoint("again")):
            with pytest.raises(StoreFailed, match=os.strerror(code)):
                act()
    assert (project / "README.md").read_text() == "wrecked"
    ws.rollback()
    assert (project / "README.md").read_text() != "wrecked"
    ws.close()


@pytest.mark.root
@needs_loop
@pytest.mark.parametrize("what", ("store", "tree"))
def test_C16_a_disk_that_becomes_read_only(server: ForkServer, what: str) -> None:
    """EROFS: told plainly; reading commands still work; sound when it is writable again."""
    disk = power.Disk(worlds.scratch_base(), size=16 << 20)
    disk.mount()
    try:
        with Site(server) as site:
            setattr(site, "home" if what == "store" else "tree", disk.mount_point / "x")
            worlds.fifty(site.tree)
            site.ok("init")
            id = site.checkpoint("base")
            target = site.look()
            worlds.wreck(site.tree)
            start = site.look()
            subprocess.run(["mount", "-o", "remount,ro", disk.mount_point], check=True)
            try:
                for argv in (("checkpoint", "x"), ("rollback", id)):
                    ran = site.run(*argv)
                    if what == "tree" and argv[0] == "checkpoint":
                        assert ran.code == 0, ran
                        continue
                    told_plainly(ran, "read-only", codes=(5, 10))
                assert site.differs(start) == []
                assert site.run("log").code == 0
            finally:
                subprocess.run(["mount", "-o", "remount,rw", disk.mount_point], check=True)
            site.ok("rollback", id)
            assert site.differs(target) == []
            assert site.run("verify").code == 0
    finally:
        disk.close()
