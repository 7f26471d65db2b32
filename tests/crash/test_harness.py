"""The harness itself: on a toy engine, every planted bug is found, the good one passes, and every fault really fires.

A sweep in which nothing fires passes too; so each point must prove that its fault happened.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import worlds
from support.forkserver import MUTATING, READ, WRITE, Fault, ForkServer
from support.tree import diff_fingerprints, erase, fingerprint

HERE = Path(__file__).resolve().parent.parent / "support"


@pytest.fixture(scope="module")
def toy() -> Iterator[ForkServer]:
    server = ForkServer("toy:main", paths=[str(HERE)])
    yield server
    server.close()


def sweep(toy: ForkServer, variant: str, mode: str, code: int = 0, mask: int = MUTATING) -> tuple[int, int, int]:
    """Points, fired, unsound."""
    env = {"TOY": variant}
    put = ["put", "store", "one", "two", "three"]
    points = fired = unsound = 0
    total = None
    while total is None or points < total:
        base = tempfile.mkdtemp(dir=worlds.scratch_base())
        try:
            if total is None:
                counted = toy.run(put, cwd=base, env=env, fault=Fault(mode, -1, code, mask, record=True), roots=[base])
                assert counted.code == 0 and len(counted.calls) == counted.seen > 20
                total = counted.seen
                continue
            points += 1
            struck = toy.run(put, cwd=base, env=env, fault=Fault(mode, points, code, mask), roots=[base])
            fired += struck.fired > 0 and (not mode.startswith("kill") or struck.code == -9)
            first = toy.run(["check", "store"], cwd=base)
            again = toy.run(put, cwd=base, env=env)
            second = toy.run(["check", "store"], cwd=base)
            acked = {line.split()[1] for line in struck.out.splitlines()}
            there = {line.split()[0] for line in first.out.splitlines() if line.endswith("whole")}
            unsound += bool(first.code or again.code or second.code or acked - there)
        finally:
            erase(base)
    return points, fired, unsound


@pytest.mark.parametrize(
    ("variant", "mode", "code", "mask", "is_sound"),
    [
        ("good", "kill", 0, MUTATING, True),
        ("good", "kill_after", 0, MUTATING, True),
        ("good", "errno", errno.ENOSPC, MUTATING, True),
        ("good", "errno_from", errno.EIO, MUTATING, True),
        ("good", "short", 0, WRITE, True),
        ("inplace", "kill", 0, MUTATING, False),
        ("rowfirst", "kill", 0, MUTATING, False),
        ("noloop", "short", 0, WRITE, False),
    ],
)
def test_the_sweep_finds_planted_bugs_and_nothing_else(
    toy: ForkServer, variant: str, mode: str, code: int, mask: int, is_sound: bool
) -> None:
    """Each planted bug makes unsound points; the good program makes none; every fault fires."""
    points, fired, unsound = sweep(toy, variant, mode, code, mask)
    print(f"{variant} {mode}: points {points}, fired {fired}, unsound {unsound}")
    assert fired == points > 40
    assert (unsound == 0) == is_sound


def test_reads_below_the_roots_can_fail(toy: ForkServer, tmp_path: Path) -> None:
    """Reads of the store are counted and struck; those of Python's own files are not."""
    assert toy.run(["put", "store", "one"], cwd=tmp_path).code == 0
    ran = toy.run(
        ["check", "store"], cwd=tmp_path, fault=Fault("errno", -1, errno.EIO, READ, record=True), roots=[tmp_path]
    )
    assert ran.seen > 0
    assert all(str(tmp_path) in path or len(path) > 100 for _, path in ran.calls)
    ran = toy.run(["check", "store"], cwd=tmp_path, fault=Fault("errno", 1, errno.EIO, READ), roots=[tmp_path])
    assert ran.fired == 1 and ran.code != 0


def test_a_stopped_command_goes_on_when_told(toy: ForkServer, tmp_path: Path) -> None:
    """Mode "stop" halts before the call; the file that it would have made is not there until it goes on."""
    pid = toy.spawn(["put", "store", "one"], cwd=tmp_path, fault=Fault("stop", 1))
    assert toy.wait_stopped(pid)
    assert not (tmp_path / "store" / "objects").exists()
    os.kill(pid, 18)
    ran = toy.wait(pid)
    assert (ran.code, ran.fired, ran.call) == (0, 1, "mkdir")
    assert (tmp_path / "store" / "objects").exists()


def test_what_is_run_in_the_resident_says_what_a_process_of_its_own_says(toy: ForkServer, tmp_path: Path) -> None:
    """Exit code and output of each command are its own; where it runs and what it is told end with it."""
    for n, variant in enumerate(("good", "rowfirst")):
        (tmp_path / variant).mkdir()
        ran = toy.run_resident(["put", "store", f"{n}"], cwd=tmp_path / variant, env={"TOY": variant})
        assert (ran.code, ran.out, ran.err) == (0, f"ack {n}\n", ""), ran
        assert toy.run(["check", "store"], cwd=tmp_path / variant).out == f"{n} whole\n"
    for blob in (tmp_path / "good" / "store" / "objects").iterdir():
        blob.write_bytes(b"torn")
    torn = toy.run_resident(["check", "store"], cwd=tmp_path / "good")
    assert (torn.code, torn.out) == (1, "0 torn\n")
    failed = toy.run_resident(["put"], cwd=tmp_path)
    assert failed.code == 70 and "ValueError" in failed.err and failed.out == ""


def test_a_resident_that_dies_or_hangs_is_told_and_has_a_successor(toy: ForkServer, tmp_path: Path) -> None:
    assert toy.run_resident(["die"]).code == -9
    assert toy.run_resident(["put", "store", "one"], cwd=tmp_path).code == 0
    hung = toy.run_resident(["hang"], timeout=0.2)
    assert hung.timed_out and hung.code == -9
    assert toy.run_resident(["check", "store"], cwd=tmp_path).out == "one whole\n"
    toy.dismiss_resident()
    assert toy.run_resident(["check", "store"], cwd=tmp_path).out == "one whole\n"


def test_the_oracle_sees_every_kind_of_difference(tmp_path: Path) -> None:
    """Each field that a restore must bring back makes a difference of its own."""
    root = tmp_path / "tree"
    worlds.fifty(root)
    base = fingerprint(root)
    assert diff_fingerprints(base, fingerprint(root)) == []
    changes = {
        "mode": lambda: os.chmod(root / "file-00.txt", 0o640),
        "mtime_ns": lambda: os.utime(root / "link", ns=(1, 1), follow_symlinks=False),
        "target": lambda: ((root / "absolute").unlink(), (root / "absolute").symlink_to("/etc/hostnamf")),
        "group": lambda: ((root / "a/hard-01").rename(root / "x"), os.link(root / "file-09.txt", root / "a/hard-01")),
        "sparse": lambda: (root / "sparse").write_bytes((root / "sparse").read_bytes()),
        "kind": lambda: ((root / "pipe").unlink(), (root / "pipe").mkdir()),
        "missing": lambda: (root / "file-18.txt").unlink(),
        "not wanted": lambda: (root / "extra").touch(),
    }
    if worlds.xattrs_work(str(tmp_path)):
        changes["xattrs"] = lambda: os.setxattr(root / "a", "user.x", b"1")
    for field, change in changes.items():
        change()
        now = fingerprint(root)
        assert any(field in line for line in diff_fingerprints(base, now)), field
        base = now
