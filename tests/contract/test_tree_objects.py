"""Everything a tree can hold comes back: kinds, names, depths, modes, times, attributes, holes (F07 to F19)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import struct
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from support import Cli
from support.acts import (
    assert_tree,
    changes,
    checkpoint,
    measured,
    named,
    paths,
    powerless,
    redo,
    reprieve,
    rollback,
    size_of,
)
from support.mounts import mounted
from support.tree import erase, fingerprint

IS_ROOT = os.geteuid() == 0
SCALE = int(os.environ.get("REPRIEVE_TEST_SCALE", "1"))  # 10: the figures of the issue, some minutes


def wipe(project: Path) -> None:
    """Remove everything in the project, whatever its names, modes and depth."""
    erase(project, keep_root=True)


def test_F07_special_files_hang_nobody(cli: Cli, project: Path) -> None:
    """A FIFO without a writer, a socket and devices: no command waits for them, the FIFO and devices come back."""
    os.mkfifo(project / "pipe", 0o640)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(project / "socket"))
    kinds = {"pipe"}
    if IS_ROOT:
        os.mknod(project / "char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(project / "block", stat.S_IFBLK | 0o600, os.makedev(7, 250))
        kinds |= {"char", "block"}
    before = fingerprint(project)
    try:
        made = cli("checkpoint", "--json", check=False, timeout=20)
        assert made.code in (0, 1), made
        cli("status", timeout=20, check=False)
        cli("diff", timeout=20, check=False)
        for name in kinds:
            (project / name).unlink()
        (project / "README.md").write_text("wrecked\n")
        report = cli("rollback", "--json", timeout=20, check=False).json["report"]
        assert kinds <= paths(report["restored"])
        assert_tree(project, before)

        (project / "socket").unlink()
        report = cli("rollback", "--json", timeout=20, check=False).json["report"]
        assert "socket" in paths(report["not_undone"])  # only its program can make it again
    finally:
        listener.close()


KINDS = ("absent", "file", "directory", "link", "fifo")


def put(path: Path, kind: str, text: str) -> None:
    """Something of that kind at path, which is free."""
    if kind == "file":
        path.write_text(text)
    elif kind == "directory":
        path.mkdir()
        (path / "inner").write_text(text)
        (path / "sub").mkdir()
        (path / "sub" / "deeper").write_text(text)
    elif kind == "link":
        path.symlink_to(text)
    elif kind == "fifo":
        os.mkfifo(path)


def test_F08_every_kind_turns_into_every_other_and_back(cli: Cli, project: Path) -> None:
    """All pairs of absent, file, directory, link and FIFO in one tree: rollback and redo are exact."""
    folder = project / "swaps"
    folder.mkdir()
    pairs = [(a, b) for a in KINDS for b in KINDS]
    for a, b in pairs:
        put(folder / f"{a}-{b}", a, "before")
    before = fingerprint(project)
    checkpoint(cli)
    for a, b in pairs:
        path = folder / f"{a}-{b}"
        if a == "directory":
            shutil.rmtree(path)
        elif a != "absent":
            path.unlink()
        put(path, b, "after")
    after = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, after)
    cli("revert", "swaps")
    assert_tree(project, before)


HOSTILE = [
    b"new\nline",
    b"tab\there",
    b"esc\x1b[31mred",
    b"bell\x07",
    b"-rf",
    b"--help",
    b"*",
    b"?",
    b"[a-z]",
    b"'single'",
    b'"double"',
    b"back\\slash",
    b"trailing space ",
    b" leading",
    b"trailing\r",
    b"trailing.",
    b"...",
    b"$(touch pwned)",
    b"`touch pwned`",
    b"a;b|c&d",
    b"~",
    b"#comment",
    b"!bang",
    b"C:",
    b"con",
    b"\xe2\x80\xaegpj.exe",
    b"zero\xe2\x80\x8bwidth",
    b"%s%n",
    b"{x}",
    b"\x01\x7f",
]


def test_F09_hostile_names_make_the_round_trip(cli: Cli, project: Path) -> None:
    """Control characters, options, globs, quotes: kept as they are, shown escaped, and JSON stays JSON."""
    folder = os.fsencode(project / "names")
    os.mkdir(folder)
    for i, name in enumerate(HOSTILE):
        with open(folder + b"/" + name, "wb") as file:
            file.write(b"%d" % i)
    before = fingerprint(project)
    checkpoint(cli)
    for name in HOSTILE:
        os.unlink(folder + b"/" + name)
    seen = changes(cli)
    assert {f"names/{os.fsdecode(name)}" for name in HOSTILE} <= set(seen)
    for args in (("status",), ("diff",), ("diff", "--stat"), ("rollback", "--dry-run"), ("rollback",)):
        out = cli(*args, check=False).out
        for raw in ("new\nline", "\x1b[31m", "\x07", "\u202e", "\r", "\x01", "\x7f", "\u200b"):
            assert raw not in out, (args, raw)
    assert_tree(project, before)
    assert not (project / "pwned").exists()


def test_F10_names_and_targets_that_are_not_utf8(cli: Cli, project: Path) -> None:
    """Invalid UTF-8 in names, folders and link targets makes the round trip; JSON has it as surrogate escapes."""
    root = os.fsencode(project)
    os.mkdir(root + b"/\xff\xfe")
    with open(root + b"/\xff\xfe/\x80abc", "wb") as file:
        file.write(b"x")
    os.symlink(b"\xc3\x28/\xff", root + b"/link-\xa0")
    before = fingerprint(project)
    checkpoint(cli)
    os.unlink(root + b"/\xff\xfe/\x80abc")
    os.rmdir(root + b"/\xff\xfe")
    os.unlink(root + b"/link-\xa0")
    answer = cli("status", "--json", check=False)
    assert "\\udcff" in answer.out
    found = {os.fsencode(change["path"]) for change in json.loads(answer.out)["changes"]}
    assert {b"\xff\xfe/\x80abc", b"link-\xa0"} <= found
    report = rollback(cli)
    assert b"link-\xa0" in {os.fsencode(path) for path in report["restored"]}
    assert_tree(project, before)
    os.unlink(root + b"/\xff\xfe/\x80abc")
    cli("revert", b"\xff\xfe/\x80abc")
    assert_tree(project, before, ignore=("dir_mtime_ns",))


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "日" * 85, "🙂" * 63], ids=["1", "2", "3", "4"])
def test_F11_the_longest_names(cli: Cli, project: Path, name: str) -> None:
    """Names of 255 bytes leave no room for a suffix, and need none."""
    (project / name).write_text("file\n")
    (project / "d").mkdir()
    (project / "d" / name).mkdir()
    (project / "d" / name / name).symlink_to(name)
    before = fingerprint(project)
    checkpoint(cli)
    (project / name).write_text("wrecked\n")
    shutil.rmtree(project / "d")
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def test_F12_composed_and_decomposed_twins_are_two_files(cli: Cli, project: Path) -> None:
    """The same letters written in two ways are two names, and stay two."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    (project / composed).write_text("composed\n")
    (project / decomposed).write_text("decomposed\n")
    if len([name for name in os.listdir(project) if name.startswith("caf")]) == 1:
        pytest.skip("this file system folds the two into one")
    before = fingerprint(project)
    checkpoint(cli)
    (project / composed).unlink()
    rollback(cli)
    assert_tree(project, before)
    (project / decomposed).write_text("wrecked\n")
    cli("revert", decomposed)
    assert_tree(project, before)


def make_deep(project: Path, name: bytes, depth: int) -> None:
    """A chain of directories, with a file at the bottom, deeper than any path can say."""
    fd = os.open(project, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    bottom = os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd)
    os.write(bottom, b"at the bottom\n")
    os.close(bottom)
    os.close(fd)


@pytest.mark.slow
def test_F13_a_tree_three_thousand_deep(project: Path) -> None:
    """3,000 levels of ten bytes make the round trip with few open files, and without recursion."""
    make_deep(project, b"0123456789", 3_000)
    before = fingerprint(project)
    try:
        reprieve("checkpoint", cwd=project, files=64)
        erase(project / "0123456789")
        (project / "README.md").write_text("wrecked\n")
        report = reprieve("rollback", "--json", cwd=project, files=64).json["report"]
        assert len(report["restored"]) >= 3_001
        assert_tree(project, before)
        reprieve("redo", cwd=project, files=64)
        assert not (project / "0123456789").exists()
        reprieve("rollback", cwd=project, files=64)
        assert_tree(project, before)
    finally:
        if (project / "0123456789").exists():
            erase(project / "0123456789")


def test_F13_longer_paths_than_are_kept_are_named(project: Path) -> None:
    """A thousand levels of 255 bytes make the round trip, or the answer names where protection ends."""
    name = b"n" * 255
    make_deep(project, name, 1_000)
    before = fingerprint(project)
    try:
        made = reprieve("checkpoint", "--json", cwd=project, files=64, check=False)
        assert made.code in (0, 1), made
        gaps = made.json["checkpoint"]["gaps"]
        (project / "README.md").write_text("wrecked\n")
        assert reprieve("rollback", cwd=project, files=64, check=False).code in (0, 1, 6)
        assert_tree(project, before)
        if gaps:
            assert any(gap["path"].startswith(os.fsdecode(name)) for gap in gaps)
        else:
            erase(project / os.fsdecode(name))
            reprieve("rollback", cwd=project, files=64)
            assert_tree(project, before)
    finally:
        if (project / os.fsdecode(name)).exists():
            erase(project / os.fsdecode(name))


@pytest.mark.slow
@pytest.mark.parametrize(("files", "folders"), [(100_000, 0), (0, 20_000)], ids=["files", "folders"])
def test_F14_a_crowd_in_one_directory(home: Path, tmp_path: Path, files: int, folders: int) -> None:
    """100,000 files in one directory and 20,000 directories: done in under 1 GB, at a cost that grows evenly.

    REPRIEVE_TEST_SCALE=10 makes it a million and 200,000.
    """
    memory = Path("/dev/shm")
    project = Path(mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    crowd = project / "crowd"
    crowd.mkdir()
    fd = os.open(crowd, os.O_RDONLY | os.O_DIRECTORY)
    for i in range(files * SCALE):
        os.close(os.open(b"%d" % i, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd))
    for i in range(folders * SCALE):
        os.mkdir(b"%d" % i, dir_fd=fd)
    os.close(fd)
    try:
        first = measured("checkpoint", "--json", cwd=project)
        assert first.result.code == 0, first.result
        assert first.result.json["checkpoint"]["files"] >= files * SCALE
        assert first.peak_bytes < 1 << 30
        assert first.seconds < 60 * SCALE
        gone = [crowd / str(i) for i in range(0, (files + folders) * SCALE, 1_000)]
        for path in gone:
            path.rmdir() if folders else path.unlink()
        (crowd / "made").write_text("made\n")
        back = measured("rollback", "--json", cwd=project)
        assert back.result.code == 0, back.result
        assert back.peak_bytes < 1 << 30
        assert len(os.listdir(crowd)) == (files + folders) * SCALE
        assert all(path.exists() for path in gone)
    finally:
        erase(project)


def test_F15_empty_sealed_sticky_and_setgid_directories(cli: Cli, project: Path) -> None:
    """Directories come back with their modes, also ones that nobody may enter."""
    for name, mode in (("sticky", 0o1777), ("setgid", 0o2775), ("all", 0o3755), ("search", 0o711)):
        (project / name).mkdir()
        (project / name / "x").write_text("x\n")
        (project / name).chmod(mode)
    if IS_ROOT:
        (project / "sealed").mkdir()
        (project / "sealed" / "x").write_text("x\n")
        (project / "sealed").chmod(0)
    before = fingerprint(project)
    checkpoint(cli)
    for name in ("empty", "sticky", "setgid", "all", "search", *(["sealed"] if IS_ROOT else [])):
        (project / name).chmod(0o755)
        shutil.rmtree(project / name)
    rollback(cli)
    assert_tree(project, before)


def test_F15_a_directory_that_may_not_be_entered_is_named(project: Path) -> None:
    """For an ordinary user a directory of mode 0 is a gap; it is neither emptied nor removed."""
    person = powerless(project)
    (project / "sealed").mkdir()
    (project / "sealed" / "x").write_text("x\n")
    (project / "sealed").chmod(0)
    made = person("checkpoint", "--json", check=False)
    assert "sealed" in paths(made.json["checkpoint"]["gaps"])
    (project / "README.md").write_text("wrecked\n")
    rollback(person)
    assert stat.S_IMODE((project / "sealed").stat().st_mode) == 0
    (project / "sealed").chmod(0o700)
    assert (project / "sealed" / "x").read_text() == "x\n"


def test_F16_modes_of_every_kind(cli: Cli, project: Path) -> None:
    """No access, read-only, setuid, setgid and sticky files come back with their modes."""
    modes = {f"mode-{mode:o}": mode for mode in (0o400, 0o444, 0o4755, 0o2755, 0o1777, 0o6711, 0o777, 0o600)}
    if IS_ROOT:
        modes["mode-0"] = 0
    for name, mode in modes.items():
        (project / name).write_text(f"{name}\n")
        (project / name).chmod(mode)
    before = fingerprint(project)
    checkpoint(cli)
    for i, name in enumerate(modes):
        (project / name).unlink() if i % 2 else (project / name).chmod(0o640)
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


@pytest.mark.root
def test_F16_setuid_comes_back_only_with_its_owner(project: Path) -> None:
    """A setuid program of somebody else's is not turned into one of ours when its owner cannot be set."""
    if not IS_ROOT:
        pytest.skip("giving a file to another user needs root")
    (project / "tool").write_text("#!/bin/sh\n")
    os.chown(project / "tool", 4242, 4242)
    (project / "tool").chmod(0o4755)
    person = powerless(project)
    made = person("checkpoint", "--json", check=False)
    assert made.code in (0, 1)
    (project / "tool").unlink()
    answer = person("rollback", "--json", check=False)
    if (project / "tool").exists():
        st = (project / "tool").stat()
        assert st.st_uid == 4242 or not st.st_mode & stat.S_ISUID
        assert "tool" in named(answer.json["report"])
    else:
        assert answer.code != 0
        assert "tool" in answer.out


TIMES = {
    "epoch": 0,
    "before": -1_000_000_001,
    "1969": -86_400 * 10**9 + 7,
    "1901": -(2**31) * 10**9,
    "2038": 2**31 * 10**9 + 123_456_789,
    "2446": 15_032_385_534 * 10**9 + 999_999_999,
    "digits": 1_234_567_890_123_456_789,
    "one": 1,
}


def test_F17_times_far_back_and_far_ahead(cli: Cli, project: Path) -> None:
    """Zero, negative, after 2038 and every digit of the nanoseconds: mtimes come back exactly."""
    for name, ns in TIMES.items():
        (project / name).write_text(name)
        (project / f"dir-{name}").mkdir()
        (project / f"link-{name}").symlink_to(name)
        for path in (project / name, project / f"dir-{name}", project / f"link-{name}"):
            os.utime(path, ns=(ns, ns), follow_symlinks=False)
    before = fingerprint(project)
    assert before[b"digits"].mtime_ns == TIMES["digits"]
    checkpoint(cli)
    for i, name in enumerate(TIMES):
        (project / f"link-{name}").unlink()
        (project / f"dir-{name}").rmdir()
        (project / name).unlink() if i % 2 else os.utime(project / name)
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def acl(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX ACL as the kernel stores it: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NO_ID = 0xFFFFFFFF
ACL = acl((1, 6, NO_ID), (2, 4, 1234), (4, 4, NO_ID), (0x10, 4, NO_ID), (0x20, 0, NO_ID))


def set_or_skip(path: Path, name: str, value: bytes) -> None:
    """Set an xattr; skip where the file system has none."""
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"the file system of the temporary directory does not take {name}: {error.strerror}")


def is_trusted(link: Path, value: bytes) -> bool:
    """Set an attribute on a link itself, which only the root of a whole machine may do; whether it worked."""
    try:
        os.setxattr(link, "trusted.link", value, follow_symlinks=False)
    except OSError:
        return False
    return True


def test_F18_extended_attributes_acls_and_capabilities(cli: Cli, project: Path) -> None:
    """Attributes with NUL bytes, empty ones, large ones, ACLs on files and folders, and, as root, capabilities."""
    set_or_skip(project / "README.md", "user.nul", b"a\x00b\x00")
    set_or_skip(project / "README.md", "user.empty", b"")
    set_or_skip(project / "data.bin", "user.large", os.urandom(2_500))
    set_or_skip(project / "src", "user.folder", b"on a directory")
    set_or_skip(project / "src" / "main.py", "system.posix_acl_access", ACL)
    set_or_skip(project / "empty", "system.posix_acl_default", ACL)
    if IS_ROOT:
        capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service=ep
        set_or_skip(project / "tool.sh", "security.capability", capability)
    trusted = is_trusted(project / "link", b"on the link itself")
    before = fingerprint(project)
    checkpoint(cli)

    (project / "README.md").unlink()
    os.setxattr(project / "data.bin", "user.large", b"smaller")
    os.setxattr(project / "data.bin", "user.added", b"by the agent")
    os.removexattr(project / "src" / "main.py", "system.posix_acl_access")
    shutil.rmtree(project / "empty")
    (project / "tool.sh").write_text("rewritten\n")
    (project / "link").unlink()
    broken = fingerprint(project)
    assert {"README.md", "data.bin", "empty", "tool.sh"} <= set(changes(cli))
    rollback(cli)
    assert_tree(project, before)
    if trusted:
        assert os.getxattr(project / "link", "trusted.link", follow_symlinks=False) == b"on the link itself"
    redo(cli)
    assert_tree(project, broken)


@pytest.mark.root
def test_F18_an_attribute_of_64_kilobytes(project: Path, tmp_path: Path, cli: Cli) -> None:
    """The largest value that the kernel allows makes the round trip where the file system takes it (XFS does)."""
    with mounted("xfs", tmp_path / "xfs", scratch=tmp_path) as at:
        there = at / "project"
        there.mkdir()
        (there / "f").write_text("f\n")
        os.setxattr(there / "f", "user.large", os.urandom(65_536))
        before = fingerprint(there)
        checkpoint(cli, cwd=there)
        (there / "f").unlink()
        rollback(cli, cwd=there)
        assert_tree(there, before)


def test_F19_holes_stay_holes(cli: Cli, project: Path, home: Path) -> None:
    """A file of 10 GiB with a few bytes in it is captured at once, costs nothing, and comes back with its holes."""
    sparse, tail, head = project / "sparse", project / "tail", project / "head"
    marks = {0: b"first", 5 << 30: b"middle" * 100, (10 << 30) - 4: b"last"}
    with sparse.open("wb") as file:
        for offset, data in marks.items():
            file.seek(offset)
            file.write(data)
    with tail.open("wb") as file:
        file.write(os.urandom(100_000))
        file.truncate(50 << 20)
    with head.open("wb") as file:
        file.truncate(64 << 20)
    ends = tail.read_bytes()[:100_000]
    if sparse.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("the file system of the temporary directory has no holes")
    checkpoint(cli, timeout=60)
    assert size_of(home) < 20 << 20
    sparse.unlink()
    tail.write_bytes(b"short")
    head.unlink()
    rollback(cli, timeout=60)

    for path, size in ((sparse, 10 << 30), (tail, 50 << 20), (head, 64 << 20)):
        assert path.stat().st_size == size
        assert path.stat().st_blocks * 512 < 2 << 20, f"{path.name} came back dense"
    with sparse.open("rb") as file:
        for offset, data in marks.items():
            file.seek(offset)
            assert file.read(len(data)) == data
        file.seek(1 << 30)
        assert file.read(4096) == bytes(4096)
    assert tail.read_bytes()[:100_000] == ends
    sparse.unlink()


def test_F19_punching_a_hole_is_a_change(cli: Cli, project: Path) -> None:
    """Data written into a hole, and a file that lost its tail to one, are found and taken back."""
    holey = project / "holey"
    with holey.open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(1 << 20)
    before = fingerprint(project)
    checkpoint(cli)
    with holey.open("r+b") as file:
        file.seek(512 << 10)
        file.write(b"y" * 4096)
    assert changes(cli) == {"holey": "modified"}
    rollback(cli)
    assert_tree(project, before)


def test_F10_json_of_any_name_parses(cli: Cli, project: Path) -> None:
    """Each of 200 odd names appears once in the JSON of status and of the plan, and maps back to its bytes."""
    names = {bytes([i, 0x80 + i % 0x80]) for i in range(1, 256) if i not in (0x2F, 0x2E)}
    checkpoint(cli)
    for name in names:
        with open(os.fsencode(project) + b"/" + name, "wb"):
            pass
    status: Any = cli("status", "--json", check=False).json
    assert {os.fsencode(change["path"]) for change in status["changes"]} == names
    plan: Any = cli("rollback", "--dry-run", "--json").json["plan"]
    assert {os.fsencode(action["path"]) for action in plan["actions"] if action["kind"] == "delete"} == names
