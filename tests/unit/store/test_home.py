"""REPRIEVE_HOME is made safely, checked at every opening, and never opened when it is not right."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.errors import Misconfigured, StoreCorrupted, StoreFailed
from reprieve.model.timeline import Draft
from reprieve.store.home import open_home, write_all
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def work(store: LocalStore) -> None:
    with store.lock("w"):
        store.blobs.put([blob(b"x" * 300_000), blob(b"y")])
        with store.transaction():
            store.blobs.flush()
            store.timeline("w").append(Draft("checkpoint", 1))
    with store.gc_lock():
        store.blobs.collect({blob(b"y")[0]})


def test_everything_is_for_the_owner_alone_under_any_umask(tmp_path: Path, umask: int) -> None:
    store = LocalStore.open(str(tmp_path / "state" / "home"))
    work(store)
    store.close()
    found = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    modes = {str(p.relative_to(tmp_path)): stat.S_IMODE(p.lstat().st_mode) for p in found}
    assert modes == {name: 0o700 if (tmp_path / name).is_dir() else 0o600 for name in modes}
    assert len(modes) > 8


def test_no_file_is_wider_for_an_instant(tmp_path: Path) -> None:
    """Look after every single change, with a umask that takes nothing away."""
    before = os.umask(0)
    root = tmp_path / "state"
    wide: list[str] = []
    real = {name: getattr(os, name) for name in ("open", "mkdir", "rename", "pwrite", "fsync", "fdatasync")}

    def look(name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            result = real[name](*args, **kwargs)
            for top, directories, files in os.walk(root):
                for one in [*directories, *files, "."]:
                    info = os.lstat(os.path.join(top, one))
                    if info.st_mode & 0o077:
                        wide.append(f"{name}: {top}/{one} {info.st_mode:o}")
            return result

        return call

    try:
        for name in real:
            setattr(os, name, look(name))
        store = LocalStore.open(str(root / "home"))
        work(store)
        store.close()
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        os.umask(before)
    assert wide == []


def test_a_home_that_is_a_symlink_is_refused(tmp_path: Path, store: LocalStore, path: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(Misconfigured) as caught:
        LocalStore.open(str(link))
    assert "symbolic link" in caught.value.message
    assert path in caught.value.hints[0]


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o707, 0o755, 0o701])
def test_a_home_that_others_can_enter_is_refused(store: LocalStore, path: str, mode: int) -> None:
    os.chmod(path, mode)
    with pytest.raises(Misconfigured) as caught:
        LocalStore.open(path)
    assert caught.value.hints == (f"chmod 700 {path}",)
    os.chmod(path, 0o700)
    LocalStore.open(path).close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_home_of_another_user_is_refused(store: LocalStore, path: str) -> None:
    os.chown(path, 12345, -1)
    with pytest.raises(Misconfigured) as caught:
        LocalStore.open(path)
    assert "12345" in caught.value.message


def test_a_home_that_is_a_file_is_refused(path: str) -> None:
    Path(path).write_text("x")
    with pytest.raises(Misconfigured):
        LocalStore.open(path)


def test_a_directory_with_other_things_in_it_is_left_alone(path: str) -> None:
    os.mkdir(path, 0o700)
    Path(path, "thesis.tex").write_text("x")
    with pytest.raises(Misconfigured) as caught:
        LocalStore.open(path)
    assert caught.value.details == ("thesis.tex",)
    assert os.listdir(path) == ["thesis.tex"]


def test_without_create_nothing_is_made(path: str) -> None:
    with pytest.raises(StoreFailed):
        LocalStore.open(path, create=False)
    assert not os.path.exists(path)


def test_a_newer_format_is_refused_and_left_alone(store: LocalStore, path: str) -> None:
    """C28: the message says which version is needed."""
    store.close()
    Path(path, "format").write_text("reprieve store 2 reprieve >= 0.9\nwhatever else\n")
    before = {p: p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}
    with pytest.raises(StoreFailed) as caught:
        LocalStore.open(path)
    assert "format 2" in caught.value.message
    assert "reprieve >= 0.9" in caught.value.hints[0]
    assert {p: p.read_bytes() for p in Path(path).rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("content", ["", "rubbish", "reprieve store x\n", "\0" * 17])
def test_a_damaged_format_line_is_named(store: LocalStore, path: str, content: str) -> None:
    Path(path, "format").write_text(content)
    with pytest.raises(StoreCorrupted):
        LocalStore.open(path)


def test_a_lost_database_is_damage_and_not_a_new_store(store: LocalStore, path: str) -> None:
    """Otherwise the next collection would take all packs for garbage."""
    store.blobs.put([blob(b"x")])
    store.blobs.flush()
    store.close()
    os.unlink(f"{path}/store.db")
    with pytest.raises(StoreCorrupted):
        LocalStore.open(path)
    Path(path, "store.db").touch(0o600)
    with pytest.raises(StoreCorrupted):
        LocalStore.open(path).workspaces()
    assert os.listdir(f"{path}/packs") == ["1.pack"]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:7], offset))
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    write_all(fd, b"0123456789" * 10, 3)
    os.close(fd)
    assert (tmp_path / "x").read_bytes() == b"\0\0\0" + b"0123456789" * 10


def test_creation_killed_anywhere_is_completed_by_the_next_opening(
    tmp_path: Path, kill_sweep: Callable[[Callable[[int], None], Callable[[int], None]], int]
) -> None:
    """C01."""

    def create(number: int) -> None:
        store = LocalStore.open(str(tmp_path / f"{number}" / "home"))
        store.workspaces()
        store.close()

    def check(number: int) -> None:
        store = LocalStore.open(str(tmp_path / f"{number}" / "home"))
        work(store)
        assert list(store.blobs.check()) == []
        assert os.listdir(store.home.file("tmp")) == []  # the collection has cleared it
        store.close()

    assert kill_sweep(create, check) > 15


def test_two_processes_may_create_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "home")
    children = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                store = LocalStore.open(path)
                store.timeline("w").append(Draft("checkpoint", number))
                store.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 8
    store = LocalStore.open(path)
    assert len(list(store.timeline("w").after(0))) == 8
    store.close()


def test_trailing_slashes_and_relative_paths_mean_the_same_home(
    store: LocalStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.path.dirname(path))
    assert open_home("home/").path == open_home("./home").path == path


def test_a_home_with_any_name(tmp_path: Path) -> None:
    """SQLite is given a URI: quoting must hold for every byte."""
    for name in ["with space", "per%20cent", "question?mode=memory", "hash#x", "uml\xe4ut", "\udcff\udcfe"]:
        path = os.path.join(str(tmp_path), name)
        store = LocalStore.open(path)
        store.timeline("w").append(Draft("checkpoint", 1))
        store.close()
        assert os.path.getsize(f"{path}/store.db") > 0
