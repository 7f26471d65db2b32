"""A disk that the store itself has filled to its last byte: prune, gc and forget free space on it all the same."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reprieve.store.packfile import can_make_hole
from support import power, worlds
from support.forkserver import SPACE, Fault, ForkServer, Ran
from support.mounts import tool
from support.scenes import SCENES
from support.site import Site, is_root
from support.sweep import points_of
from support.tree import Fingerprint

PRUNE = ("prune", "--keep-last", "2", "--keep-days", "0", "--yes")
MIB = 1 << 20
ALL_NODES = 1 << 40
LIMIT = int(os.environ.get("REPRIEVE_POINTS", "50"))  # points of one command; beyond that evenly sampled

pytestmark = [pytest.mark.root, pytest.mark.skipif(not is_root(), reason="mounting a disk needs root")]


@contextmanager
def ext4(size: int, *options: str) -> Iterator[Path]:
    """A real disk without blocks set aside for root."""
    if power.missing():
        pytest.skip(power.missing())
    disk = power.Disk(worlds.scratch_base(), size=size, options=("-m", "0", *options))
    disk.mount()
    try:
        yield disk.mount_point
    finally:
        disk.close()


@contextmanager
def tmpfs(size: int) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="reprieve-full-", dir=worlds.scratch_base()))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def exfat(size: int) -> Iterator[Path]:
    """A file system that can't free a part of a file in its middle."""
    mount = tool("mount.exfat-fuse")
    folder = Path(tempfile.mkdtemp(prefix="reprieve-full-", dir=worlds.scratch_base()))
    image, at = folder / "image", folder / "mounted"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([tool("mkfs.exfat"), str(image)], check=True, capture_output=True)
    found = subprocess.run(
        [tool("losetup"), "--find", "--show", str(image)], check=True, capture_output=True, text=True
    )
    device = found.stdout.strip()
    try:
        subprocess.run([mount, "-o", "umask=077", device, str(at)], check=True, capture_output=True)
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=False, capture_output=True)
        subprocess.run([tool("losetup"), "--detach", device], check=True)
        shutil.rmtree(folder)


DISKS: dict[str, Callable[[int], contextlib.AbstractContextManager[Path]]] = {
    "ext4": lambda size: ext4(size),
    "ext4 of small blocks": lambda size: ext4(size, "-b", "1024", "-O", "^has_journal"),
    "tmpfs": tmpfs,
    "exfat": exfat,
}


def free(disk: Path) -> int:
    """Bytes that anybody can still use."""
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


def use_up(disk: Path) -> None:
    """Take what room is left, to the last block."""
    with open(disk / "junk", "ab", buffering=0) as file:
        for size in (65536, 1024, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    os.sync()
    with contextlib.suppress(OSError), open(disk / "junk", "ab", buffering=0) as file:
        while file.write(bytes(512)):
            pass
    assert free(disk) == 0


class History:
    """Checkpoints of a tree whose large file is another one each time."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.trees: dict[str, Fingerprint] = {}
        self.contents: dict[str, list[bytes]] = {}

    def fill(self, *, size: int, parts: int = 1) -> None:
        """Take checkpoints until one no longer fits."""
        told = self.take(200, size=size, parts=parts)
        assert told is not None and "full" in told.out + told.err, told

    def take(self, count: int, *, size: int, parts: int = 1) -> Ran | None:
        """Take so many checkpoints, or until one fails; that one."""
        rnd = random.Random(5)
        self.site.tree.mkdir(exist_ok=True)
        (self.site.tree / "small").write_text("small\n")
        for n in range(count):
            for part in range(parts):
                content = rnd.randbytes(size)
                (self.site.tree / f"large-{part}").write_bytes(content)
                self.contents.setdefault(f"large-{part}", []).append(content)
            with self.site.in_one_process():
                ran = self.site.run("checkpoint", f"n{n}", "--json")
            if ran.code != 0:
                return ran
            self.trees[f"n{n}"] = self.site.look()
        return None

    def check(self, labels: list[str]) -> None:
        """The store is whole, has these checkpoints, and gives their trees back."""
        self.site.ok("verify")
        listed = [e["label"] for e in self.site.answer("log")["entries"] if e["label"] in self.trees]
        assert sorted(listed) == sorted(labels)
        for label in labels:
            self.site.ok("rollback", label)
            assert self.site.differs(self.trees[label], ignore=["dir_mtime_ns"]) == []


def stays_as_it_is(site: Site, *argv: str) -> None:
    """No room to move one large frame, and no way to free the middle of a file: told before anything is changed."""
    before = log_of(site)
    ran = site.run(*argv)
    assert ran.code == 10 and "full" in ran.err, ran
    assert log_of(site) == before
    site.ok("verify")


def gone(home: Path, contents: list[bytes]) -> bool:
    """None of these is in a pack."""
    packs = b"".join(path.read_bytes() for path in (home / "packs").iterdir())
    return not any(content[-1000:] in packs for content in contents)


def log_of(site: Site) -> object:
    return site.answer("log", "--all")["entries"]


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    with DISKS[request.param](24 * MIB) as at:
        yield at


@pytest.mark.parametrize("parts", (1, 20), ids=("one large file", "many small files"))
def test_prune_frees_space_with_0_bytes_free(disk: Path, site: Site, parts: int) -> None:
    """What the store filled, the store frees; what is kept comes back byte for byte."""
    site.home = disk / "home"
    history = History(site)
    history.fill(size=2_000_000 // parts, parts=parts)
    use_up(disk)
    kept = list(history.trees)[-2:]
    if parts == 1 and not can_make_hole(str(site.home / "packs" / "1.pack")):
        stays_as_it_is(site, *PRUNE)
        return
    pruned = site.answer(*PRUNE)
    assert pruned["bytes"] > 2_000_000 * (len(history.trees) - 4)
    assert free(disk) > 2_000_000
    (disk / "junk").unlink()
    history.check(kept)
    site.ok("checkpoint", "and it goes on")


def test_gc_frees_space_with_0_bytes_free(disk: Path, server: ForkServer) -> None:
    """Content that nothing leads to goes, though the disk has no room for a journal."""
    with Site(server) as site:
        site.home = disk / "home"
        history = History(site)
        history.take(5, size=2_000_000)
        kept = list(history.trees)[-2:]
        site.plant = "prune alone"
        site.ok(*PRUNE)
        site.plant = ""
        use_up(disk)
        if not can_make_hole(str(site.home / "packs" / "1.pack")):
            stays_as_it_is(site, "gc")
            return
        assert site.answer("gc")["bytes"] > 2_000_000
        assert free(disk) > 2_000_000
        history.check(kept)


def test_forget_frees_space_with_0_bytes_free(disk: Path, site: Site) -> None:
    """The content is gone from the packs, and from the disk."""
    site.home = disk / "home"
    site.tree.mkdir()
    secret = b"SECRET in its own frame " * 100_000
    (site.tree / "secret").write_bytes(random.Random(1).randbytes(1_500_000) + secret)
    history = History(site)
    history.fill(size=1_000_000)
    use_up(disk)
    assert site.answer("forget", "secret", "--yes")["bytes"] > 1_000_000
    assert free(disk) > 1_000_000
    (disk / "junk").unlink()
    assert site.run("verify").code == 0
    assert "forget secret" in [e["label"] for e in site.answer("log", "--all")["entries"]]


def test_doctor_recommends_what_frees_space(site: Site) -> None:
    """What it names on a full disk works there, and it names no prune that would delete nothing."""
    with tmpfs(24 * MIB) as disk:
        site.home = disk / "home"
        History(site).fill(size=2_000_000)
        use_up(disk)

        def hint() -> str:
            found = site.run("doctor", "--json").json["findings"]
            return next(str(finding["hint"]) for finding in found if finding["subject"] == "store")

        assert "no checkpoint is old enough" in hint()
        command = hint().partition("keep fewer: reprieve ")[2].split()
        assert site.answer(*command, "--yes")["bytes"] > 2_000_000
        (site.base / "config.toml").write_text("[retention]\nkeep_last = 2\nkeep_days = 0\n")
        use_up(disk)
        assert hint().startswith("reprieve prune ")
        assert site.answer("prune", "--yes")["bytes"] > 2_000_000


def test_what_another_process_takes_at_once_stops_no_prune(site: Site) -> None:
    """Every byte that is freed is gone the next moment, and yet all that the history held is given back."""
    with DISKS["ext4"](24 * MIB) as disk:
        site.home = disk / "home"
        history = History(site)
        history.fill(size=2_000_000)
        use_up(disk)
        before = sum(p.stat().st_blocks for p in (site.home / "packs").iterdir()) * 512
        done = threading.Event()

        def grab() -> None:
            with open(disk / "grabbed", "ab", buffering=0) as file:
                while not done.is_set():
                    with contextlib.suppress(OSError):
                        file.write(bytes(65536))

        thread = threading.Thread(target=grab)
        thread.start()
        try:
            ran = site.run(*PRUNE)
        finally:
            done.set()
            thread.join()
        pruned = [e for e in log_of(site) if e["kind"] == "prune"]  # type: ignore[attr-defined]
        after = sum(p.stat().st_blocks for p in (site.home / "packs").iterdir()) * 512
        if ran.code == 10:
            assert not pruned
        else:
            assert ran.code in (0, 6), ran
            assert pruned and before - after > 8_000_000, ran
        for name in ("junk", "grabbed"):
            (disk / name).unlink()
        if pruned:
            history.check(list(history.trees)[-2:])
        else:
            site.ok("verify")


def test_a_disk_without_inodes_can_be_freed(site: Site) -> None:
    """Room for bytes but not for names."""
    with ext4(24 * MIB, "-N", "64") as disk:
        site.home = disk / "home"
        history = History(site)
        history.fill(size=2_000_000)
        kept = list(history.trees)[-2:]
        with contextlib.suppress(OSError):
            for n in range(ALL_NODES):
                (disk / f"junk-{n}").touch()
        with open(disk / "junk-0", "ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(512)):
                pass
        assert (free(disk), os.statvfs(disk).f_favail) == (0, 0)
        assert site.answer(*PRUNE)["bytes"] > 2_000_000
        for junk in disk.glob("junk-*"):
            junk.unlink()
        history.check(kept)


@pytest.mark.parametrize("name", ("prune", "forget"))
def test_one_that_fails_for_want_of_space_changes_nothing(server: ForkServer, name: str) -> None:
    """Whenever the disk becomes full for good: exit code 10 and every checkpoint is as it was, or all of it is done."""
    scene = SCENES[name]
    with Site(server) as site:
        calls = site.run(*scene.prepare(site).argv, fault=Fault("errno_from", at=-1, mask=SPACE)).seen
    refused = 0
    for at in range(1, calls + 1):
        with Site(server) as site:
            facts = scene.prepare(site)
            before = log_of(site)
            ran = site.run(*facts.argv, fault=Fault("errno_from", at=at, mask=SPACE))
            assert ran.code in (0, 6, 10), (at, ran)
            if ran.code != 10:
                assert log_of(site) != before
                continue
            refused += 1
            assert log_of(site) == before, (at, ran)
            site.ok("verify")
            doomed = next(e["id"] for e in before if e["label"] == "doomed")  # type: ignore[attr-defined]
            site.ok("rollback", doomed)
            assert (site.tree / "only here").read_bytes() == random.Random(9).randbytes(30_000)
    assert refused


@pytest.mark.parametrize("argv", (PRUNE, ("forget", "large-0", "--yes")), ids=("prune", "forget"))
@pytest.mark.parametrize("mode", ("kill", "kill_after"))
def test_killed_anywhere_on_a_full_disk_no_kept_checkpoint_is_lost(
    site: Site, mode: str, argv: tuple[str, ...]
) -> None:
    """It has happened or not; what is kept comes back, and the same command ends what the killed one began."""
    with tmpfs(3 * MIB) as disk:
        site.home = disk / "home"
        history = History(site)
        history.fill(size=60_000, parts=4)
        kept, saved = list(history.trees)[-2:], site.base / "saved"
        shutil.copytree(site.home, saved)

        def start_over() -> None:
            (disk / "junk").unlink(missing_ok=True)
            shutil.rmtree(site.home)
            shutil.copytree(saved, site.home)
            os.chmod(site.home, 0o700)
            use_up(disk)

        start_over()
        ran = site.run(*argv, fault=Fault(mode, at=-1))
        assert ran.code == 0, ran
        for at in points_of(ran.seen, shard=0, shards=1, limit=LIMIT):
            start_over()
            ran = site.run(*argv, fault=Fault(mode, at))
            assert ran.fired or ran.seen < at, (at, ran)
            with site.in_one_process():
                site.ok("verify")
                again = site.run(*argv)
                assert again.code == 0, (at, again)
                (disk / "junk").unlink()
                if argv is PRUNE:
                    history.check(kept)
                else:
                    site.ok("verify")
                    assert gone(site.home, history.contents["large-0"])
