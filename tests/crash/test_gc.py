"""Giving space back: nothing that lives is ever lost, whoever is at work, whatever is damaged or the clock says."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import worlds
from support.forkserver import Fault
from support.scenes import check_store, history_with_garbage
from support.site import Site

PRUNE = ("prune", "--keep-last", "3", "--keep-days", "0", "--yes")
STEPS = 6


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("first", ("checkpoint", "prune"))
def test_G01_prune_and_gc_while_a_checkpoint_runs(site: Site, first: str, step: int) -> None:
    """Both orders, six interleavings each: one is stopped in the middle while the other is started."""
    facts = history_with_garbage(site)
    for known in (facts.trees, facts.ids):
        del known["doomed"]
    (site.tree / "new").write_bytes(random.Random(step).randbytes(20_000))
    # content that the prune drops, and the checkpoint wants again at the same time
    (site.tree / "only here").write_bytes(random.Random(9).randbytes(30_000))
    commands = {"checkpoint": ("checkpoint", "meanwhile"), "prune": PRUNE}
    second = "prune" if first == "checkpoint" else "checkpoint"
    with Site(site.server) as rehearsal:
        history_with_garbage(rehearsal)
        (rehearsal.tree / "new").write_bytes(b"x" * 20_000)
        calls = rehearsal.run(*commands[first], fault=Fault(at=-1)).seen
    pid = site.spawn(*commands[first], fault=Fault("stop", 1 + step * (calls - 1) // STEPS))
    assert site.server.wait_stopped(pid)
    other = site.spawn(*commands[second])
    time.sleep(0.3)  # it runs into the lock, or through
    os.kill(pid, signal.SIGCONT)
    for one in (pid, other):
        ran = site.server.wait(one)
        assert ran.code == 0, ran
    site.ok("gc")
    facts.trees["meanwhile"] = site.look()
    listed = {e["label"] for e in site.answer("log", "--all")["entries"]}
    assert "meanwhile" in listed
    if first == "checkpoint" or "three" in listed:
        facts.trees.pop("one")  # four are left of which three are kept
        facts.ids.pop("one")
    assert check_store(site, facts, {}) == []


def space_used(home: Path) -> int:
    return sum(p.stat().st_size for p in (home / "packs").iterdir())


def damage_object(home: Path, id: bytes) -> None:
    """Flip a bit in the object's frame."""
    db = sqlite3.connect(home / "store.db")
    pack, offset, size = db.execute(
        "SELECT f.pack, f.offset, f.size FROM objects o JOIN frames f ON f.number = o.frame WHERE o.id = ?", (id,)
    ).fetchone()
    db.close()
    with open(home / "packs" / f"{pack}.pack", "r+b") as file:
        file.seek(offset + size - 3)
        (byte,) = file.read(1)
        file.seek(offset + size - 3)
        file.write(bytes([byte ^ 16]))


def tree_objects(home: Path) -> list[bytes]:
    """The deltas and full trees of the timeline."""
    db = sqlite3.connect(home / "store.db")
    rows = db.execute("SELECT delta FROM entries WHERE length(delta) = 32 UNION SELECT object FROM fulls").fetchall()
    db.close()
    return [row[0] for row in rows]


def test_G03_prune_and_gc_with_a_damaged_tree_delete_nothing(site: Site) -> None:
    """Who cannot read what is needed cannot know what is not."""
    history_with_garbage(site)
    for id in tree_objects(site.home):
        damage_object(site.home, id)
    before = {p.name: p.read_bytes() for p in (site.home / "packs").iterdir()}
    for argv in (PRUNE, ("gc",), ("forget", "only here", "--yes")):
        ran = site.run(*argv)
        assert ran.code in (5, 10, 13), ran
        assert "Traceback" not in ran.err
    assert before == {p.name: p.read_bytes() for p in (site.home / "packs").iterdir()}


def application(site: Site, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], int]) -> Any:
    from reprieve.app import finding

    for name, value in site.env().items():
        monkeypatch.setenv(name, value)
    return finding.open_workspace(str(site.tree), create=False, clock=clock)


@pytest.mark.parametrize("years", (10, -30), ids=("ten years ahead", "thirty years back"))
def test_G04_a_clock_that_jumps_ages_nothing(site: Site, years: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention by days, with the clock far off: what was made a minute ago stays."""
    from reprieve.app import care

    facts = history_with_garbage(site)
    jumped = time.time_ns() + years * 365 * 86_400 * 10**9
    with application(site, monkeypatch, lambda: jumped) as ws:
        care.prune(ws, keep_last=1, keep_days=7)
        care.gc(ws)
    assert check_store(site, facts, {}) == []
    with application(site, monkeypatch, lambda: jumped) as ws:  # and with a checkpoint made in that time
        (site.tree / "x").write_text("x")
        ws.checkpoint("jumped")
        care.prune(ws, keep_last=1, keep_days=7)
        care.gc(ws)
    assert check_store(site, facts, {}) == []


def test_G05_with_a_part_of_the_objects_lost_the_damage_is_listed_exactly(site: Site) -> None:
    """Every file that is lost is named, and no other; all the rest is kept and comes back."""
    worlds.fifty(site.tree)
    rnd = random.Random(5)
    for n in range(200):  # each in a frame of its own
        (site.tree / f"big-{n:03d}").write_bytes(rnd.randbytes(300_000 if n < 6 else 2000))
    site.ok("init")
    id = site.checkpoint("base")
    tree = site.look()
    import hashlib

    doomed = [f"big-{n:03d}" for n in (1, 4)]  # 2 of 200 files
    for name in doomed:
        damage_object(site.home, hashlib.sha256((site.tree / name).read_bytes()).digest())
    found = site.run("verify", "--json")
    assert found.code == 13, found
    problems = str(found.json)
    named = [f"big-{n:03d}" for n in range(200) if f"big-{n:03d}" in problems]
    assert named == doomed, found
    assert site.run("gc").code in (0, 13)
    for path in list(site.tree.glob("big-*")):
        if path.name not in doomed:
            path.unlink()
    kept = [f"big-{n:03d}" for n in range(200) if f"big-{n:03d}" not in doomed]
    ran = site.run("revert", *kept, "--to", id)
    assert ran.code == 0, ran
    assert site.differs(tree, ignore=["dir_mtime_ns"]) == []
    site.ok("checkpoint", "heals")
    assert site.run("verify").code == 0


def test_G06_garbage_checkpoints_push_no_pinned_one_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """restic's attack: 300 worthless checkpoints after a good, pinned one; retention keeps the pinned one."""
    from reprieve.app import care

    worlds.fifty(site.tree)
    site.ok("init")
    site.ok("checkpoint", "good", "--pin")
    tree = site.look()
    with application(site, monkeypatch, time.time_ns) as ws:
        for n in range(300):
            (site.tree / "garbage").write_text(str(n))
            ws.checkpoint(f"garbage {n}", actor="agent")
        care.prune(ws, keep_last=10, keep_days=0, max_bytes=1)
        care.gc(ws)
    worlds.clear(site.tree)
    site.ok("rollback", "good")
    assert site.differs(tree) == []
    assert site.run("verify").code == 0


@pytest.mark.slow
def test_G07_1000_checkpoints_and_20000_objects_scaled_from_10000_and_a_million(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """status stays under a second; the 1,000th checkpoint costs what the 10th did; nothing is rewritten as a whole."""
    site.tree.mkdir()
    rnd = random.Random(7)
    for d in range(40):
        (site.tree / f"d{d}").mkdir()
        for n in range(250):
            (site.tree / f"d{d}" / f"f{n}").write_bytes(rnd.randbytes(60))
    site.ok("init")
    seconds, written = [], []
    with application(site, monkeypatch, time.time_ns) as ws:
        ws.checkpoint("first")
        for n in range(1000):
            for k in range(10):
                (site.tree / f"d{n % 40}" / f"f{(n * 10 + k) % 250}").write_bytes(rnd.randbytes(60))
            before = _written()
            begun = time.process_time()  # the machine may be busy with other tests
            ws.checkpoint(f"number {n}")
            seconds.append(time.process_time() - begun)
            written.append(_written() - before)
    db = sqlite3.connect(site.home / "store.db")
    known = db.execute("SELECT count(*) FROM objects").fetchone()[0]
    db.close()
    assert known >= 20_000
    begun = time.perf_counter()
    ran = site.run("status")
    took = time.perf_counter() - begun
    assert ran.code in (0, 1) and took < 5, took
    early, late = sorted(seconds[5:55])[25], sorted(seconds[-50:])[25]
    early_bytes, late_bytes = sorted(written[5:55])[25], sorted(written[-50:])[25]
    print(
        f"{known} objects; checkpoint {early * 1000:.1f} -> {late * 1000:.1f} ms, {early_bytes} -> {late_bytes} bytes"
    )
    assert late < early * 1.6 + 0.005
    assert late_bytes < early_bytes * 2 + 200_000


def _written() -> int:
    """Bytes that this process has handed to the kernel so far."""
    with open("/proc/self/io") as file:
        return int(file.read().split("wchar:")[1].split()[0])
