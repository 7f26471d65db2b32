"""Never act through the tree: no link, hard link or swap in it makes us read, write or delete anything else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve.files import native
from reprieve.files.snapshot import Limits, take_snapshot
from reprieve.model.reporter import Reporter
from support import Cli
from support.acts import assert_tree, checkpoint, grep, paths, redo, rollback, script, size_of
from support.tree import fingerprint

SWAPS = 20_000

# Exchanges two names as fast as it can, and says how often.
SWAPPER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
a, b, count_file = (os.fsencode(x) for x in sys.argv[1:4])
going = True
def stop(*_):
    global going
    going = False
signal.signal(signal.SIGTERM, stop)
counter = os.open(count_file, os.O_WRONLY | os.O_CREAT)
count = 0
def swap():
    global count
    if libc.renameat2(-100, a, -100, b, 2) == 0:  # RENAME_EXCHANGE
        count += 1
swap(); swap()
os.pwrite(counter, b"%d" % count, 0)
print("ready", flush=True)
while going:
    for pause in (0, 0, 0, 50, 200):  # also leave time to get half-way in
        swap()
        for _ in range(pause): pass
    os.pwrite(counter, b"%d" % count, 0)
"""


@contextmanager
def swapping(a: Path, b: Path) -> Iterator[Path]:
    """Somebody exchanges a and b all the time; how often is written to the file that is yielded."""
    count = b.with_name("swaps")
    with script(SWAPPER, a, b, count) as process:
        yield count
        process.terminate()
        process.wait()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory next to the project that is none of our business."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("the outside a\n")
    (folder / "precious.txt").write_text("nobody may touch this\n")
    (folder / "deep" / "more.txt").write_text("nor this\n")
    return folder


def test_WB01_rollback_never_follows_a_planted_symlink(cli: Cli, project: Path, outside: Path) -> None:
    """A directory that an agent replaced by a link to elsewhere comes back; elsewhere nothing is written or deleted."""
    (project / "d").mkdir()
    (project / "d" / "a.txt").write_text("the a of the project\n")
    (project / "d" / "sub").mkdir()
    (project / "d" / "sub" / "b.txt").write_text("b\n")
    before, elsewhere = fingerprint(project), fingerprint(outside)
    checkpoint(cli)

    shutil.rmtree(project / "d")
    (project / "d").symlink_to(outside)
    report = rollback(cli)

    assert fingerprint(outside) == elsewhere
    assert_tree(project, before)
    assert "d/a.txt" in paths(report["restored"])


def test_WB01_redo_puts_the_link_back_and_follows_it_neither(cli: Cli, project: Path, outside: Path) -> None:
    """Redo turns the directory into the agent's link again, without a look at what is behind it."""
    checkpoint(cli)
    shutil.rmtree(project / "src")
    (project / "src").symlink_to(outside)
    broken, elsewhere = fingerprint(project), fingerprint(outside)
    rollback(cli)
    redo(cli)
    assert_tree(project, broken)
    assert fingerprint(outside) == elsewhere


def test_WB10_a_path_through_a_link_is_not_inside(cli: Cli, project: Path, outside: Path) -> None:
    """Naming a file through a link that leads outside neither captures nor rewrites the file it leads to."""
    (project / "way-out").symlink_to(outside)
    checkpoint(cli)
    (outside / "a.txt").write_text("changed by whoever owns it\n")
    elsewhere = fingerprint(outside)
    for args in (("revert", "way-out/a.txt"), ("rollback", "--only", "way-out/a.txt"), ("rollback",)):
        answer = cli(*args, check=False)
        assert answer.code != 70, answer
        assert fingerprint(outside) == elsewhere, args
    assert cli("revert", "way-out/a.txt", check=False).code != 0


def test_EC06_a_link_to_an_outside_file_stays_a_link(cli: Cli, project: Path, outside: Path) -> None:
    """A link comes back as a link, a file that was replaced by a link as a file; the outside file keeps its bytes."""
    (project / "to-a").symlink_to(outside / "a.txt")
    before = fingerprint(project)
    checkpoint(cli)

    (project / "to-a").unlink()
    (project / "README.md").unlink()
    (project / "README.md").symlink_to(outside / "precious.txt")
    (outside / "a.txt").write_text("changed by its owner\n")
    elsewhere = fingerprint(outside)
    rollback(cli)

    assert_tree(project, before)
    assert os.readlink(project / "to-a") == str(outside / "a.txt")
    assert fingerprint(outside) == elsewhere


def test_F01_links_of_every_kind_come_back_unfollowed(cli: Cli, project: Path, home: Path, outside: Path) -> None:
    """Links to files, directories, nothing, themselves, and with the longest target: kept as links, never followed."""
    secret = os.urandom(4096)
    (outside / "secret").write_bytes(secret)
    (outside / "dir").mkdir()
    (outside / "dir" / "secret").write_bytes(secret)
    links = project / "links"
    links.mkdir()
    targets: dict[str, bytes] = {
        "file": os.fsencode(outside / "secret"),
        "dir": os.fsencode(outside / "dir"),
        "relative": b"../../outside/secret",
        "dangling": b"no/such/thing",
        "loop": b"loop",
        "root": b"/",
        "longest": b"x" * 4095,
        "space": b" ",
        "dot": b".",
        "newline": b"a\nb",
    }
    for name, target in targets.items():
        os.symlink(target, os.fsencode(links / name))
    before, elsewhere = fingerprint(project), fingerprint(outside)
    checkpoint(cli)

    for name in targets:
        (links / name).unlink()
    for name in ("file", "dir", "longest"):
        (links / name).symlink_to("somewhere else")
    (links / "loop").mkdir()
    wrecked = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, wrecked)
    rollback(cli)

    assert {name: os.readlink(os.fsencode(links / name)) for name in targets} == targets
    assert fingerprint(outside) == elsewhere
    assert grep(home, secret[:64]) == []


@pytest.mark.slow
@pytest.mark.parametrize("round", range(4))
def test_F02_twenty_thousand_swaps_during_restore_escape_never(
    cli: Cli, project: Path, tmp_path: Path, round: int
) -> None:
    """While somebody exchanges a directory with a link to elsewhere, restores write nothing elsewhere.

    And when it is over, the history is as good as ever: a rollback gives exactly the tree of its checkpoint.
    """
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "f0").write_text("of somebody else\n")
    folder = project / "d"
    folder.mkdir()
    for i in range(100):
        (folder / f"f{i}").write_text(f"good {i}\n")
    good = fingerprint(project)
    first = checkpoint(cli)
    for i in range(100):
        (folder / f"f{i}").write_text(f"bad {i}\n")
        (folder / f"g{i}").write_text(f"made {i}\n")
    bad = fingerprint(project)
    second = checkpoint(cli)
    elsewhere = fingerprint(victim)

    link = tmp_path / "link"
    link.symlink_to(victim)
    deadline = time.monotonic() + 240
    runs = 0
    with swapping(folder, link) as count:
        while (runs < 15 or int(count.read_text()) < SWAPS) and time.monotonic() < deadline:
            for args in (("rollback", first), ("redo",), ("revert", "d", "--to", first)):
                answer = cli(*args, check=False)
                assert answer.code not in (70, 13) and answer.code >= 0, answer
                runs += 1
    assert int(count.read_text()) >= SWAPS
    assert fingerprint(victim) == elsewhere

    if folder.is_symlink():  # the race is over: whoever held the directory gives it back
        folder.unlink()
        link.rename(folder)
    for ref, wanted in ((first, good), (second, bad), (first, good)):
        rollback(cli, ref)
        assert_tree(project, wanted)
    assert fingerprint(victim) == elsewhere
    cli("verify")


def test_F02_opening_beneath_a_swapped_directory_twenty_thousand_times(tmp_path: Path) -> None:
    """The one function that opens paths for writing refuses or stays inside, 20,000 times out of 20,000."""
    tree, victim, link = tmp_path / "tree", tmp_path / "victim", tmp_path / "link"
    (tree / "d").mkdir(parents=True)
    victim.mkdir()
    link.symlink_to(victim)
    root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    opened = refused = 0
    try:
        with swapping(tree / "d", link):
            for i in range(SWAPS):
                try:
                    os.close(native.open_beneath(root, b"d/f%d" % (i % 500), os.O_WRONLY | os.O_CREAT, 0o600))
                    opened += 1
                except OSError:
                    refused += 1
    finally:
        os.close(root)
    assert opened and refused  # it was a race indeed
    assert os.listdir(victim) == []


@pytest.mark.slow
def test_F03_swaps_during_capture_bring_no_outside_byte_in(cli: Cli, project: Path, home: Path, tmp_path: Path) -> None:
    """While somebody exchanges a directory with a link to elsewhere, checkpoints store nothing from elsewhere."""
    folder, victim, link = project / "d", tmp_path / "victim", tmp_path / "link"
    folder.mkdir()
    victim.mkdir()
    secrets = []
    for i in range(50):
        (folder / f"f{i}").write_text(f"inside {i}\n")
        secrets.append(os.urandom(512))
        (victim / f"f{i}").write_bytes(secrets[-1])
    link.symlink_to(victim)
    deadline = time.monotonic() + 240
    runs = 0
    with swapping(folder, link) as count:
        while (runs < 25 or int(count.read_text()) < SWAPS) and time.monotonic() < deadline:
            for i in range(50):  # keep them new, so that each checkpoint reads them
                for place in (folder, link):
                    try:
                        if not place.is_symlink():
                            os.utime(place / f"f{i}", follow_symlinks=False)
                    except OSError:
                        pass
            answer = cli("checkpoint", "--json", check=False)
            assert answer.code in (0, 1), answer
            runs += 1
    assert int(count.read_text()) >= SWAPS
    stored = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert [secret for secret in secrets if secret[:48] in stored] == []


def test_F03_scanning_and_reading_stay_inside_under_swaps(tmp_path: Path) -> None:
    """The scan and the reads that follow it, 20,000 swaps long, never return a byte from behind the link."""
    tree, victim, link = tmp_path / "tree", tmp_path / "victim", tmp_path / "link"
    (tree / "d").mkdir(parents=True)
    victim.mkdir()
    secret = os.urandom(256)
    for name in ("a", "b"):
        (tree / "d" / name).write_text("inside\n")
        (victim / name).write_bytes(secret)
    link.symlink_to(victim)
    root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    seen = 0
    deadline = time.monotonic() + 240
    try:
        with swapping(tree / "d", link) as count:
            while (seen < 2_000 or int(count.read_text()) < SWAPS) and time.monotonic() < deadline:
                rows, _, _ = native.scan(root, None, 0, 0, False, None, frozenset())
                data, parts, _, _ = native.read_rows(root, rows, 0, 1 << 20, 1 << 20)
                assert secret not in bytes(data)
                seen += len(parts)
    finally:
        os.close(root)
    assert seen
    assert int(count.read_text()) >= SWAPS


def test_F04_a_file_that_is_a_pipe_when_it_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file changes while it is read and is a pipe before it is known what it was: a gap, not an error."""
    (tmp_path / "a").write_text("a file")
    read_rows = native.read_rows

    def exchange(*args: Any) -> Any:
        _, parts, _, _ = read_rows(*args)
        (tmp_path / "a").unlink()
        os.mkfifo(tmp_path / "a")
        return b"", [], -1, [(part[0], errno.EAGAIN) for part in parts]

    monkeypatch.setattr(native, "read_rows", exchange)
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        seen = take_snapshot(root, last=None, put=None, limits=Limits(), reporter=Reporter())
    finally:
        os.close(root)
    assert {gap.path: gap.reason for gap in seen.gaps} == {b"a": "changed while it was being read"}


@pytest.mark.parametrize("kind", ["fifo", "symlink"])
def test_F04_a_file_that_changes_kind_between_look_and_open(tmp_path: Path, kind: str) -> None:
    """A file that became a FIFO or a link after it was looked at is a problem that is named, without a hang."""
    tree, secret = tmp_path / "tree", tmp_path / "secret"
    tree.mkdir()
    secret.write_bytes(b"not for us")
    (tree / "f").write_text("a plain file\n")
    root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        rows, _, _ = native.scan(root, None, 0, 0, False, None, frozenset())
        (tree / "f").unlink()
        os.mkfifo(tree / "f") if kind == "fifo" else (tree / "f").symlink_to(secret)
        data, parts, _, problems = native.read_rows(root, rows, 0, 1 << 20, 1 << 20)
    finally:
        os.close(root)
    assert b"not for us" not in bytes(data)
    assert [part for part in parts if part[2]] == []
    assert len(problems) == 1


@pytest.mark.parametrize("kind", ["fifo", "symlink"])
def test_F04_swapping_a_file_during_checkpoints(cli: Cli, project: Path, home: Path, tmp_path: Path, kind: str) -> None:
    """Checkpoints end, and hold nothing foreign, while a file turns into a FIFO or a link and back all the time."""
    secret = os.urandom(4096)
    (tmp_path / "secret").write_bytes(secret)
    other = tmp_path / "other"
    os.mkfifo(other) if kind == "fifo" else other.symlink_to(tmp_path / "secret")
    (project / "f").write_text("a plain file\n")
    with swapping(project / "f", other):
        for _ in range(8):
            answer = cli("checkpoint", "--json", check=False, timeout=30)
            assert answer.code in (0, 1), answer
    assert grep(home, secret[:64]) == []


@pytest.mark.parametrize("links", [2, 1_000])
def test_F05_hard_links_come_back_as_one_file(cli: Cli, project: Path, home: Path, links: int) -> None:
    """A group of hard links is stored once and comes back as a group."""
    data = os.urandom(1 << 20)
    (project / "group").mkdir()
    first = project / "group" / "0"
    first.write_bytes(data)
    for i in range(1, links):
        os.link(first, project / "group" / str(i))
    before = fingerprint(project)
    cli("init")
    empty = size_of(home)
    checkpoint(cli)
    assert size_of(home) - empty < 3 << 19

    shutil.rmtree(project / "group")
    rollback(cli)
    assert_tree(project, before)
    assert first.stat().st_nlink == links


def test_F05_a_broken_group_is_joined_again(cli: Cli, project: Path) -> None:
    """One name of a group that was replaced by a file of its own becomes a name of the group again, and back."""
    for name in ("x", "y", "z"):
        os.link(project / "data.bin", project / name)
    before = fingerprint(project)
    checkpoint(cli)
    (project / "y").unlink()
    (project / "y").write_bytes((project / "data.bin").read_bytes())
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


@pytest.mark.parametrize("more", ["", "ln x third", "mkdir made; ln x made/third", "chmod 600 x; ln x third"])
def test_F05_a_touched_group_is_set_back_and_nobody_is_blamed(cli: Cli, project: Path, more: str) -> None:
    """Times that we set under one name change under all of them; that was us, and no late writer."""
    for name in ("x", "y"):
        os.link(project / "data.bin", project / name)
    before = fingerprint(project)
    checkpoint(cli)
    subprocess.run(["sh", "-c", f"touch x; {more}"], cwd=project, check=True)
    touched = fingerprint(project)
    assert rollback(cli)["conflicts"] == []
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, touched)


def test_F06_a_hard_link_to_an_outside_file_is_not_written_through(cli: Cli, project: Path, outside: Path) -> None:
    """A restore replaces the name in the tree; the file outside that shared its bytes keeps what it has."""
    os.link(outside / "precious.txt", project / "shared.txt")
    checkpoint(cli)
    with (project / "shared.txt").open("a") as file:
        file.write("added by the agent, in place\n")
    elsewhere = fingerprint(outside)
    rollback(cli)

    assert (project / "shared.txt").read_text() == "nobody may touch this\n"
    assert fingerprint(outside) == elsewhere
    assert not os.path.samefile(project / "shared.txt", outside / "precious.txt")


STORE_PARTS = ["", "store.db", "packs", "locks", "index", "tmp", "format"]


@pytest.mark.parametrize("part", STORE_PARTS)
def test_F46_a_link_in_the_place_of_the_store_is_refused(
    cli: Cli, project: Path, home: Path, tmp_path: Path, part: str
) -> None:
    """A link where the store, its database, lock or scratch directory should be is refused, and not followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    is_file = "." in part or part == "format"
    target = elsewhere / "file" if is_file else elsewhere
    if is_file:
        target.write_text("somebody's file\n")
    if part:
        home.mkdir(mode=0o700)
        (home / part).symlink_to(target)
    else:
        home.symlink_to(target)
    untouched = fingerprint(elsewhere)
    answer = cli("checkpoint", "--json", check=False)
    assert answer.code in (3, 10, 13), answer
    assert answer.json["error"]["message"]
    assert fingerprint(elsewhere) == untouched


@pytest.mark.parametrize("part", ["packs", "locks", "index", "tmp"])
def test_F46_a_link_planted_later_is_refused_as_well(
    cli: Cli, project: Path, home: Path, tmp_path: Path, part: str
) -> None:
    """A part of the store that somebody replaced by a link is not worked through."""
    checkpoint(cli)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(home / part, elsewhere) if (home / part).exists() else elsewhere.mkdir()
    shutil.rmtree(home / part, ignore_errors=True)
    (home / part).symlink_to(elsewhere)
    untouched = fingerprint(elsewhere)
    (project / "README.md").write_text("changed\n")
    answer = cli("checkpoint", "--json", check=False)
    assert answer.code in (3, 10, 13), answer
    assert fingerprint(elsewhere) == untouched
