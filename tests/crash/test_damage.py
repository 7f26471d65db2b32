"""Rot and tampering: what is damaged is named, never handed out as if it were whole; the rest stays usable.

Flips bits in stored objects and in pages of the database, cuts, removes and replaces packs, puts an older database in
place, pretends a newer version. All by plain file access: the engine's own code has no part in the damage.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import worlds
from support.forkserver import ForkServer, Ran
from support.site import Site
from support.tree import Fingerprint

FLIPS = 200  # objects that lose a bit, one at a time
PAGES = 60  # pages of the database, one at a time
TIMELINE_FLIPS = 60  # in the pages that lead to a checkpoint
REFUSALS = {10, 13}


class Stored(NamedTuple):
    """Where an object lies on the disk."""

    id: bytes
    pack: int
    offset: int  # of its frame
    size: int


class Damaged(NamedTuple):
    """A world whose tree is at `last`, with an older checkpoint that differs from it."""

    site: Site
    first: str
    last: str
    trees: dict[str, Fingerprint]


@pytest.fixture(scope="module")
def rotten(server: ForkServer) -> Iterator[Damaged]:
    """One world for all flips: each flip is taken back before the next one."""
    with Site(server) as site:
        yield build(site)


@pytest.fixture
def fresh(site: Site) -> Damaged:
    return build(site)


def build(site: Site) -> Damaged:
    worlds.fifty(site.tree)
    rnd = random.Random(4)
    for n in range(120):  # objects of their own, so that a sample of 200 is mostly of different frames
        (site.tree / "c" / f"more-{n}").write_bytes(rnd.randbytes(rnd.choice((10, 3000, 40_000))))
    site.ok("init")
    first = site.checkpoint("first")
    trees = {first: site.look()}
    worlds.wreck(site.tree)
    for n in range(0, 120, 2):
        (site.tree / "c" / f"more-{n}").write_bytes(rnd.randbytes(500))
    last = site.checkpoint("last")
    trees[last] = site.look()
    return Damaged(site, first, last, trees)


def objects(home: Path) -> list[Stored]:
    with sqlite3.connect(home / "store.db") as db:
        rows = db.execute(
            "SELECT o.id, f.pack, f.offset, f.size FROM objects o JOIN frames f ON f.number = o.frame ORDER BY o.id"
        ).fetchall()
    db.close()
    return [Stored(*row) for row in rows]


def flip(path: Path, at: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def told(ran: Ran) -> str:
    assert ran.code != 70 and ran.code >= 0 and "Traceback" not in ran.err, ran
    return ran.out + ran.err


def never_wrong_bytes(world: Damaged, id: str) -> bool:
    """Roll back to id; True if it came back whole, False if it was refused with nothing touched."""
    before = world.site.look()
    back = world.site.run("rollback", id)
    told(back)
    if back.code == 0:
        assert world.site.differs(world.trees[id]) == []
        return True
    assert back.code in REFUSALS, back
    assert world.site.differs(before) == [], back
    return False


def test_C25_a_bit_flip_in_200_objects_is_named_and_never_restored(rotten: Damaged) -> None:
    """verify names it; a rollback that needs it is refused with nothing touched; nothing wrong is ever written."""
    site, rnd = rotten.site, random.Random(25)
    refused = harmless = 0
    for number in range(FLIPS):
        every = objects(site.home)  # a checkpoint after damage stores an object anew, in another place
        one = rnd.choice(every)
        pack = site.home / "packs" / f"{one.pack}.pack"
        at, bit = one.offset + rnd.randrange(one.size), rnd.randrange(8)
        flip(pack, at, bit)
        found = site.run("verify")
        if found.code == 0:
            # the byte belongs to a copy that was stored anew since, or means nothing to the decompressor
            assert never_wrong_bytes(rotten, rotten.first) and never_wrong_bytes(rotten, rotten.last), found
            harmless += 1
            flip(pack, at, bit)
            continue
        assert found.code == 13, f"object {one.id.hex()}, byte {at} of pack {one.pack}: {found}"
        assert any(o.id.hex()[:12] in told(found) for o in every if (o.pack, o.offset) == (one.pack, one.offset)), found
        if number % 4 == 0:
            refused += not never_wrong_bytes(rotten, rotten.first)
            refused += not never_wrong_bytes(rotten, rotten.last)
        flip(pack, at, bit)
    assert refused > 0
    assert harmless < FLIPS // 4
    assert site.run("verify").code == 0, "taking the flips back heals"
    assert never_wrong_bytes(rotten, rotten.first)
    assert never_wrong_bytes(rotten, rotten.last)


def test_C25_a_bit_flip_in_each_page_of_the_database(rotten: Damaged) -> None:
    """Named, refused or harmless; never wrong bytes, never a crash."""
    site, rnd = rotten.site, random.Random(26)
    path = site.home / "store.db"
    good = path.read_bytes()
    size = int.from_bytes(good[16:18], "big")
    size = 65536 if size == 1 else size
    pages = list(range(len(good) // size))
    chosen = pages if len(pages) <= PAGES else rnd.sample(pages, PAGES)
    counts = {"named": 0, "harmless": 0}
    never_wrong_bytes(rotten, rotten.last)
    good, witness = path.read_bytes(), kept_witness(site)
    for page in chosen:
        flip(path, page * size + rnd.randrange(size), rnd.randrange(8))
        damaged = path.read_bytes()
        found = site.run("verify")
        text = told(found)
        assert found.code in (0, 3, *REFUSALS), found
        counts["named" if found.code else "harmless"] += 1
        if found.code:
            assert text.strip()
        path.write_bytes(damaged)  # verify may have marked things
        came = [never_wrong_bytes_or_unknown(rotten, id) for id in (rotten.first, rotten.last)]
        assert all(came) or found.code != 0, f"page {page}: {came}, but verify says all is well"
        good, witness = heal(rotten, good, witness), kept_witness(site)
    print(counts)
    assert counts["named"] > 0


def test_C25_a_bit_flip_in_what_the_timeline_is_found_by(rotten: Damaged) -> None:
    """Rows, indexes, marks: a rollback reaches exactly its checkpoint or is refused, also without the cached index."""
    site, rnd = rotten.site, random.Random(27)
    path = site.home / "store.db"
    assert never_wrong_bytes(rotten, rotten.first) and never_wrong_bytes(rotten, rotten.last)
    good, witness = path.read_bytes(), kept_witness(site)
    counts = {"came": 0, "refused": 0}
    for number in range(TIMELINE_FLIPS):
        at = rnd.choice(bytes_in_use(path, rnd.choice(OF_THE_TIMELINE)))
        flip(path, at, rnd.randrange(8))
        damaged = path.read_bytes()
        verified = site.run("verify")
        assert verified.code in (0, 3, *REFUSALS), verified.err
        path.write_bytes(damaged)
        if number % 2:
            empty_index(site)
        came = [never_wrong_bytes_or_unknown(rotten, id) for id in (rotten.first, rotten.last)]
        assert all(came) or verified.code, f"byte {at}: {came}, but verify says all is well"
        counts["came"] += sum(came)
        counts["refused"] += 2 - sum(came)
        good, witness = heal(rotten, good, witness), kept_witness(site)
    print(counts)
    assert min(counts.values()) > 0


def test_C25_a_whole_tree_does_not_stand_for_another_entry(fresh: Damaged) -> None:
    """A full tree whose row names the wrong entry is passed over: its checkpoint comes back right, or not at all."""
    site = fresh.site
    for label in ("three", "four"):
        worlds.two_of_fifty(site.tree, seed=len(label))
        id = site.checkpoint(label)
        fresh.trees[id] = site.look()
    site.ok("prune", "--keep-last", "2", "--keep-days", "0", "--yes")
    with sqlite3.connect(site.home / "store.db") as db:
        assert db.execute("UPDATE fulls SET seq = seq + 1").rowcount == 1
    db.close()
    empty_index(site)
    before = site.look()
    back = site.run("rollback", id)
    assert (back.code, site.differs(before)) == (13, []), back


OF_THE_TIMELINE = (
    "entries", "sqlite_autoindex_entries_1", "sqlite_autoindex_entries_2", "entries_label", "workspaces", "marks",
    "fulls",
)  # fmt: skip


def bytes_in_use(path: Path, name: str) -> list[int]:
    """Where the header, the cell pointers and the cells of a table's or an index's first page lie in the file."""
    with sqlite3.connect(path) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    start = (page - 1) * size
    head = path.read_bytes()[start : start + 8]
    cells, content = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
    return [*range(start, start + 8 + 2 * cells), *range(start + content, start + size)]


def kept_witness(site: Site) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (site.home / "witness").iterdir()}


def empty_index(site: Site) -> None:
    for leftover in (site.home / "index").iterdir():
        leftover.unlink()


def heal(world: Damaged, good: bytes, witness: dict[Path, bytes]) -> bytes:
    """Put the database back, with the witness that belongs to it; the database after a rollback that must work."""
    database = world.site.home / "store.db"
    database.write_bytes(good)
    for path, content in witness.items():
        path.write_bytes(content)
    empty_index(world.site)
    assert never_wrong_bytes(world, world.last)
    return database.read_bytes()


def never_wrong_bytes_or_unknown(world: Damaged, id: str) -> bool:
    """As above; the checkpoint itself may be unknown (2), or the workspace (3), when its row is damaged."""
    before = world.site.look()
    back = world.site.run("rollback", id)
    told(back)
    if back.code == 0:
        assert world.site.differs(world.trees[id]) == []
        return True
    assert back.code in {2, 3, *REFUSALS}, back
    assert world.site.differs(before) == [], back
    return False


def cut(pack: Path) -> None:
    os.truncate(pack, pack.stat().st_size * 2 // 3)


def empty(pack: Path) -> None:
    os.truncate(pack, 0)


def remove(pack: Path) -> None:
    pack.unlink()


def become_directory(pack: Path) -> None:
    pack.unlink()
    pack.mkdir(mode=0o700)


def become_link(pack: Path) -> None:
    elsewhere = pack.parent.parent.parent / "elsewhere"
    shutil.move(pack, elsewhere)
    pack.symlink_to(elsewhere)


@pytest.mark.parametrize("harm", (cut, empty, remove, become_directory, become_link))
def test_C26_a_lost_pack_is_named_and_the_next_checkpoint_heals_it(fresh: Damaged, harm: object) -> None:
    """Refused with nothing touched; the same content, checkpointed again, is whole again."""
    site = fresh.site
    packs = sorted((site.home / "packs").glob("*.pack"), key=lambda p: p.stat().st_size)
    harm(packs[-1])  # type: ignore[operator]
    found = site.run("verify")
    assert found.code == 13, found
    assert "pack" in told(found), found
    never_wrong_bytes(fresh, fresh.first)
    assert site.differs(fresh.trees[fresh.last]) == []
    again = site.checkpoint("again")
    fresh.trees[again] = site.look()
    worlds.clear(site.tree)
    assert never_wrong_bytes(fresh, again), "the content of the last checkpoint is healed"
    assert site.differs(fresh.trees[fresh.last]) == []


def test_C27_an_older_database_is_noticed(fresh: Damaged) -> None:
    """A restored backup, or someone who wants entries to vanish: verify says that rows and head disagree."""
    site = fresh.site
    shutil.copy(site.home / "store.db", site.base / "old.db")
    (site.tree / "later").write_text("later")
    later = site.checkpoint("later")
    assert site.run("verify").code == 0
    shutil.copy(site.base / "old.db", site.home / "store.db")
    found = site.run("verify")
    assert found.code == 13, found
    assert later not in [e["id"] for e in site.answer("log", "--all")["entries"]]
    assert never_wrong_bytes(fresh, fresh.first)  # what is there stays usable


@pytest.mark.parametrize("what", ("schema", "format"))
def test_C28_a_newer_version_is_refused_and_not_touched(fresh: Damaged, what: str) -> None:
    """Nothing is written; the message says which version to use."""
    site = fresh.site
    if what == "schema":
        with sqlite3.connect(site.home / "store.db") as db:
            db.execute("PRAGMA user_version = 99")
            db.execute("INSERT OR REPLACE INTO meta VALUES ('needs', 'Reprieve 9.9')")
        db.close()
    else:
        (site.home / "format").write_text("reprieve store 99\n")
    before = {p: p.read_bytes() for p in site.home.rglob("*") if p.is_file() and p.parent.name != "locks"}
    (site.tree / "new").write_text("new")
    for argv in (("checkpoint", "x"), ("rollback", fresh.first), ("gc",), ("redo",), ("log",), ("init",), ("verify",)):
        ran = site.run(*argv)
        assert ran.code in (3, 10), ran
        assert "99" in told(ran), ran
    after = {p: p.read_bytes() for p in site.home.rglob("*") if p.is_file() and p.parent.name != "locks"}
    assert before == after


def test_C07_killed_at_every_call_of_a_migration(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old or new version, both open; no row lost."""
    from support.forkserver import Fault
    from support.sweep import Tally

    tally = Tally("migration kill")
    total, at = 1, 0
    while at < total:
        with Site(server) as site:
            worlds.fifty(site.tree)
            site.ok("init")
            id = site.checkpoint("base")
            tree = site.look()
            site.plant = "migration"  # this process knows one step more
            if at == 0:
                counted = site.run("checkpoint", "x", fault=Fault(at=-1, record=True))
                assert counted.code == 0, counted
                total = max(n for n, (_, path) in enumerate(counted.calls, 1) if "store.db" in path)
                at = 1
                continue
            struck = site.run("checkpoint", "killed", fault=Fault("kill", at))
            tally.points += 1
            tally.fired += struck.code == -9
            for plant in ("migration",):  # the newer program goes on; the older one refuses once it is migrated
                site.plant = plant
                wrong = [str(r) for r in (site.run("checkpoint", "next"), site.run("verify")) if r.code != 0]
                worlds.clear(site.tree)
                back = site.run("rollback", id)
                wrong += [str(back)] if back.code else site.differs(tree)
                if wrong:
                    tally.unsound.append("\n".join([f"call {at} {struck.call} {struck.path}", *wrong]))
            site.plant = ""
            older = site.run("checkpoint", "older")
            assert older.code == 10 and "version" in told(older), older
        at += 1
    tally.check()
