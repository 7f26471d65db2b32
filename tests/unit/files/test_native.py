"""The native functions, in C and in Python: each promise of _native.pyi, and that both give the same answers."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from types import ModuleType

import pytest

from reprieve.files import _native, _twin, native
from support.natives import (
    FUTURE,
    NAMES,
    Root,
    index_of,
)

# -- which one is in use


def test_the_extension_is_built_and_chosen() -> None:
    """A build that silently fell back to Python is a failure here."""
    assert native.IMPLEMENTATION == "c"
    assert native.scan is _native.scan


def test_both_implementations_have_every_function(n: ModuleType) -> None:
    assert all(callable(getattr(n, name)) for name in NAMES)
    assert sorted(_twin.__all__) == sorted(NAMES)


def test_the_environment_forces_the_twin() -> None:
    code = "from reprieve.files import native; print(native.IMPLEMENTATION, native.scan.__module__)"
    for value, wanted in (("0", "python reprieve.files._twin_scan"), ("1", "c reprieve.files._native")):
        env = {**os.environ, "REPRIEVE_NATIVE": value, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == wanted


# -- single calls


def test_rename_with_flags(n: ModuleType, root: Root) -> None:
    root.write(b"a", b"a")
    root.write(b"d/b", b"b")
    sub = os.open(root.at(b"d"), os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            n.rename2(root.fd, b"a", sub, b"b", 1)
        n.rename2(root.fd, b"a", sub, b"b", 2)
        assert (root.read(b"a"), root.read(b"d/b")) == (b"b", b"a")
        n.rename2(root.fd, b"a", sub, b"c", 1)
        n.rename2(sub, b"c", sub, b"b", 0)
        assert os.listdir(sub) == ["b"]
        with pytest.raises(FileNotFoundError):
            n.rename2(sub, b"nothing", sub, b"b", 2)
        for old, new, flags in (
            (b"d/b", b"x", 0),
            (b"b", b"../x", 0),
            (b"", b"x", 0),
            (b"b", b".", 1),
            (b"b", b"x", 3),
        ):
            with pytest.raises(OSError) as caught:
                n.rename2(sub, old, sub, new, flags)
            assert caught.value.errno == errno.EINVAL
    finally:
        os.close(sub)


def test_nothing_is_opened_through_a_link(n: ModuleType, root: Root) -> None:
    root.write(b"real/f", b"content")
    os.symlink("real", root.at(b"link"))
    os.symlink("real/f", root.at(b"flink"))
    fd = n.open_beneath(root.fd, b"real/f", os.O_RDONLY)
    assert os.read(fd, 10) == b"content"
    assert not os.get_inheritable(fd)
    os.close(fd)
    fd = n.open_beneath(root.fd, b"", os.O_RDONLY | os.O_DIRECTORY)
    assert os.path.samestat(os.fstat(fd), os.fstat(root.fd))
    os.close(fd)
    for path, flags, code in (
        (b"link/f", os.O_RDONLY, errno.ELOOP),
        (b"flink", os.O_RDONLY, errno.ELOOP),
        (b"link", os.O_RDONLY | os.O_DIRECTORY, errno.ELOOP),
        (b"real/f/x", os.O_RDONLY, errno.ENOTDIR),
        (b"real/none", os.O_RDONLY, errno.ENOENT),
        (b"real/" + b"n" * 300, os.O_RDONLY, errno.ENAMETOOLONG),
        (b"real/" + b"n" * 5000, os.O_RDONLY, errno.ENAMETOOLONG),
        (b"../tree", os.O_RDONLY, errno.EINVAL),
        (b"/etc", os.O_RDONLY, errno.EINVAL),
        (b"real/./f", os.O_RDONLY, errno.EINVAL),
        (b"real//f", os.O_RDONLY, errno.EINVAL),
        (b"real\0", os.O_RDONLY, errno.EINVAL),
    ):
        with pytest.raises(OSError) as caught:
            n.open_beneath(root.fd, path, flags)
        assert (path, caught.value.errno) == (path, code)
    os.close(n.open_beneath(root.fd, b"real/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o640))
    assert os.stat(root.at(b"real/new")).st_mode & 0o7777 & ~0o640 == 0


def test_stat_many_says_what_is_there(n: ModuleType, root: Root) -> None:
    root.write(b"d/f", b"abc")
    os.symlink("d", root.at(b"l"))
    os.utime(root.at(b"d/f"), ns=(0, -1_500_000_000))
    answers = n.stat_many(root.fd, [b"", b"d", b"d/f", b"d/none", b"d/f/x", b"l/f", b"l", b"none/x"])
    assert [a is not None for a in answers] == [True, True, True, False, False, False, True, False]
    found = os.lstat(root.at(b"d/f"))
    assert answers[2] == (
        found.st_mode, found.st_uid, found.st_gid, 1, found.st_ino, found.st_dev, 0, 3, -2, 500_000_000,
        *divmod(found.st_ctime_ns, 10**9),
    )  # fmt: skip
    assert stat.S_ISLNK(answers[6][0])
    with pytest.raises(OSError) as caught:
        n.stat_many(root.fd, [b"d/../d"])
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, b"d/../d")


def test_sync_and_birth(n: ModuleType, root: Root) -> None:
    n.syncfs(root.fd)
    with pytest.raises(OSError):
        n.syncfs(9999)
    born = n.birth(root.fd)
    assert born == 0 or abs(born - time.time_ns()) < 3600 * 10**9
    assert _native.birth(root.fd) == _twin.birth(root.fd)


def test_writers_are_told_from_readers(n: ModuleType, root: Root) -> None:
    """By a lease: who reads does not count, who writes does; what is no file has nobody. Nothing special is opened."""
    for name in ("read", "written", "free"):
        (root.path / name).write_bytes(b"x")
    os.mkfifo(root.path / "pipe")
    (root.path / "link").symlink_to("written")
    (root.path / "folder").mkdir()
    names = [b"read", b"written", b"free", b"pipe", b"link", b"folder", b"missing", b"link/x"]
    called: list[int] = []
    with (root.path / "read").open("rb"), (root.path / "written").open("r+b"):
        assert n.writers(root.fd, names, lambda: called.append(1)) == [False, True, *[False] * 6]
    assert called == [1]
    assert not any(n.writers(root.fd, names, lambda: None))
    with pytest.raises(ZeroDivisionError):
        n.writers(root.fd, [b"free"], lambda: 1 // 0)
    with pytest.raises(OSError):
        n.writers(root.fd, [b"../free"], lambda: None)
    with (root.path / "free").open("r+b"):  # no lease of ours is left
        assert n.writers(root.fd, [b"free"], lambda: None) == [True]


def test_no_descriptor_is_left_open(n: ModuleType, root: Root) -> None:
    for i in range(30):
        root.write(b"d%d/e/f" % i)
    before = len(os.listdir("/dev/fd"))
    index = index_of(n, root.fd)
    n.scan(root.fd, index, *FUTURE)
    n.stat_many(root.fd, [b"d1/e/f", b"none/x"])
    with pytest.raises(OSError):
        n.open_beneath(root.fd, b"d1/e/none/x", os.O_RDONLY)
    assert len(os.listdir("/dev/fd")) == before
