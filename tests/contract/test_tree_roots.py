"""Where tree and store lie: other file systems, odd roots. F28, F33 to F36, F42, F43."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import Cli
from support.acts import assert_tree, changes, checkpoint, named, powerless, redo, reprieve, rollback
from support.mounts import mounted
from support.rootly import root_only
from support.tree import fingerprint

# --- other file systems -----------------------------------------------------------------------------------------


def furnish(root: Path) -> None:
    """A tree with most of what file systems differ in."""
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "README.md").write_text("# readme\n")
    (root / "data.bin").write_bytes(os.urandom(300_000))
    (root / "empty").mkdir()
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("src/main.py")
    os.link(root / "README.md", root / "same")
    os.utime(root / "data.bin", ns=(1, 1_234_567_890_123_456_789))


def wreck(root: Path) -> None:
    """What an agent does to it."""
    (root / "README.md").write_text("wrecked\n")
    (root / "data.bin").unlink()
    (root / "tool.sh").chmod(0o600)
    shutil.rmtree(root / "src")
    (root / "src").write_text("a file now\n")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "made").mkdir()
    (root / "made" / "x").write_text("x\n")


def there_and_back(cli: Cli, root: Path, **kwargs: object) -> None:
    """Checkpoint, wreck, rollback, redo, rollback: exact each time."""
    before = fingerprint(root)
    cli("checkpoint", cwd=root, **kwargs)  # type: ignore[arg-type]
    wreck(root)
    wrecked = fingerprint(root)
    cli("rollback", cwd=root, **kwargs)  # type: ignore[arg-type]
    assert_tree(root, before)
    cli("redo", cwd=root, **kwargs)  # type: ignore[arg-type]
    assert_tree(root, wrecked)
    cli("rollback", cwd=root, **kwargs)  # type: ignore[arg-type]
    assert_tree(root, before)


@root_only
def test_F33_a_tree_on_exfat(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Where links, modes and fine times cannot be kept, init says so; content makes the round trip."""
    with mounted("exfat", tmp_path / "exfat", scratch=tmp_path, size_mb=64) as at:
        root = at / "project"
        (root / "src").mkdir(parents=True)
        (root / "a.txt").write_text("a\n")
        (root / "src" / "b.bin").write_bytes(os.urandom(100_000))
        said = cli("init", cwd=root)
        text = (said.out + said.err).lower()
        assert "case" in text and "link" in text, said
        before = fingerprint(root)
        checkpoint(cli, cwd=root)
        (root / "a.txt").write_text("wrecked\n")
        shutil.rmtree(root / "src")
        (root / "made").write_text("made\n")
        answer = cli("rollback", "--json", cwd=root, check=False)
        assert answer.code in (0, 1, 6), answer
        assert_tree(root, before, ignore=("dir_mtime_ns",))
        (root / "a.txt").rename(root / "A.txt")
        cli("rollback", cwd=root, check=False)
        assert [name.lower() for name in sorted(os.listdir(root))] == ["a.txt", "src"]
        assert (root / "a.txt").read_text() == "a\n"


@root_only
@pytest.mark.parametrize("kind", ["overlay", "bindfs", "tmpfs", "xfs", "btrfs", "ext4"])
def test_F34_a_tree_on_another_kind_of_file_system(cli: Cli, project: Path, tmp_path: Path, kind: str) -> None:
    """Everything is exact there too; what a file system lacks (exchange, O_TMPFILE) is done without."""
    source = tmp_path / "source"
    source.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    if kind == "overlay":
        furnish(scratch / "lower" / "project")
    with mounted(kind, tmp_path / "fs", scratch=scratch, source=source if kind == "bindfs" else None) as at:
        if kind != "overlay":
            furnish(at / "project")
        there_and_back(cli, at / "project")


@root_only
@pytest.mark.parametrize("moved", ["store", "tree"])
def test_F35_store_and_tree_on_two_file_systems(
    cli: Cli, project: Path, home: Path, tmp_path: Path, moved: str
) -> None:
    """Staging happens on the tree's side, so that no rename has to cross."""
    with mounted("tmpfs", tmp_path / "fs", scratch=tmp_path) as at:
        root = at / "project" if moved == "tree" else tmp_path / "other"
        furnish(root)
        env = {"REPRIEVE_HOME": str(at / "home" if moved == "store" else home)}
        there_and_back(cli, root, env=env)


def test_F36_a_store_inside_the_tree_is_no_part_of_it(cli: Cli, project: Path) -> None:
    """It is neither captured nor rolled back, and works."""
    inside = project / ".state" / "store"
    env = {"REPRIEVE_HOME": str(inside)}
    first = checkpoint(cli, env=env)
    (project / "README.md").write_text("two\n")
    second = checkpoint(cli, env=env)
    assert not [path for path in changes(cli, "--since", first, env=env) if path.startswith(".state/store")]
    report = rollback(cli, first, env=env)
    assert not [path for path in named(report) if path.startswith(".state/store")]
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"
    rollback(cli, second, env=env)
    assert (project / "README.md").read_text() == "two\n"
    cli("verify", env=env)


def test_F36_the_store_itself_is_no_workspace(cli: Cli, project: Path, home: Path) -> None:
    """A tree that is the store, or lies inside it, is refused."""
    checkpoint(cli)
    inner = home / "inner"
    inner.mkdir()
    for place in (home, inner, home / "packs"):
        before = fingerprint(place) if place != home / "packs" else {}
        answer = cli("init", "--json", cwd=place, check=False)
        assert answer.code in (3, 5), (place, answer)
        if before and place == inner:
            assert fingerprint(place) == before
    inner.rmdir()
    as_store = {"REPRIEVE_HOME": str(project)}
    before = fingerprint(project)
    answer = cli("checkpoint", "--json", env=as_store, check=False)
    assert answer.code in (3, 5, 10, 13), answer
    assert_tree(project, before)


# --- odd roots --------------------------------------------------------------------------------------------------


def test_F42_a_root_that_is_gone_is_refused(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Removed: the answer says that there is nothing, and nothing is made in its place."""
    checkpoint(cli)
    shutil.rmtree(project)
    for verb in ("rollback", "status", "checkpoint"):
        answer = cli("-C", str(project), verb, "--json", cwd=tmp_path, check=False)
        assert answer.code in (2, 3), answer
        assert str(project) in answer.json["error"]["message"]
    assert not project.exists()


def test_F42_a_root_replaced_by_a_link_is_not_followed(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The directory behind the link has no history here, and keeps every byte."""
    checkpoint(cli)
    project.rename(tmp_path / "aside")
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("precious\n")
    project.symlink_to(other)
    before = fingerprint(other)
    answer = cli("-C", str(project), "rollback", "--json", cwd=tmp_path, check=False)
    assert answer.code in (2, 3, 5), answer
    assert fingerprint(other) == before


def test_F42_another_directory_in_its_place_loses_nothing(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Removed and made anew (an agent's rm -rf, a fresh clone): refused, or the old tree returns, the new is kept."""
    before = fingerprint(project)
    checkpoint(cli)
    shutil.rmtree(project)
    project.mkdir()
    (project / "fresh").write_text("fresh\n")
    new = fingerprint(project)
    answer = cli("rollback", "--json", check=False)
    if answer.code != 0:
        assert answer.code in (2, 3, 4, 5), answer
        assert_tree(project, new)
    else:
        assert_tree(project, before)
        redo(cli)
        assert_tree(project, new)


@root_only
def test_F42_an_unmounted_root_is_not_an_emptied_one(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The empty mount point is not taken for a tree in which everything was deleted."""
    at = tmp_path / "mounted"
    with mounted("tmpfs", at, scratch=tmp_path):
        furnish(at)
        checkpoint(cli, cwd=at)
    assert os.listdir(at) == []
    answer = cli("rollback", "--json", cwd=at, check=False)
    assert answer.code in (2, 3, 5), answer
    assert os.listdir(at) == []
    status = cli("status", "--json", cwd=at, check=False)
    assert status.code in (2, 3, 5), status


def test_F43_the_current_directory_is_gone(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Said in words, not in a traceback; with -C it works."""
    checkpoint(cli)
    gone = tmp_path / "gone"
    gone.mkdir()
    launch = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    for args, codes in ((("status",), (2, 3)), (("-C", str(project), "status"), (0,))):
        gone.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", launch, "-P", "-m", "reprieve", *args],
            cwd=gone,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode in codes, done
        assert "Traceback" not in done.stderr


def test_F43_a_root_by_any_of_its_names(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Relative, with dots, slashes at the end, or from below: it is the same workspace."""
    first = checkpoint(cli)
    for spelled, cwd in (
        (".", project),
        ("project", tmp_path),
        ("./project/", tmp_path),
        ("project/src/..", tmp_path),
        ("../project//", project),
        (f"{project}/./src/../", tmp_path),
        ("src", project),
    ):
        entries = cli("-C", spelled, "log", "--json", cwd=cwd).json["entries"]
        assert first in {entry["id"] for entry in entries}, spelled


def test_F43_the_whole_machine_and_the_home_directory_are_refused(cli: Cli, project: Path, tmp_path: Path) -> None:
    """`/` and the home directory are never made a workspace without a flag."""
    person = tmp_path / "person"
    (person / "code").mkdir(parents=True)
    env = {"HOME": str(person)}
    for place in ("/", str(person), f"{person}/code/..", "//"):
        for verb in ("init", "checkpoint"):
            answer = cli("-C", place, verb, "--json", env=env, check=False, timeout=20)
            assert answer.code in (3, 5), (place, verb, answer)
            assert answer.json["error"]["hints"]
    cli("-C", str(person / "code"), "checkpoint", env=env)


def test_F43_a_file_is_no_root(cli: Cli, project: Path) -> None:
    """-C with a file, or with nothing, is a mistake that is named."""
    for place in (str(project / "README.md"), str(project / "nowhere")):
        answer = cli("-C", place, "checkpoint", "--json", check=False)
        assert answer.code in (2, 3), answer
        assert "Traceback" not in answer.err


@root_only
def test_F35_reprieve_survives_a_read_only_tree(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A tree on a file system that became read-only can be looked at and captured; a rollback is refused whole."""
    with mounted("tmpfs", tmp_path / "fs", scratch=tmp_path) as at:
        root = at / "project"
        furnish(root)
        checkpoint(cli, cwd=root)
        (root / "README.md").write_text("wrecked\n")
        subprocess.run(["mount", "-o", "remount,ro", str(at)], check=True)
        assert "README.md" in changes(cli, cwd=root)
        checkpoint(cli, "again", cwd=root)
        answer = cli("rollback", "~1", "--json", cwd=root, check=False)
        assert answer.code in (4, 5, 10), answer
        assert (root / "README.md").read_text() == "wrecked\n"
        subprocess.run(["mount", "-o", "remount,rw", str(at)], check=True)
        rollback(cli, "~1", cwd=root)
        assert (root / "README.md").read_text() == "# readme\n"
        redo(cli, cwd=root)


def test_F28_a_rollback_as_an_ordinary_user_is_exact(project: Path) -> None:
    """Nothing in a plain round trip needs more rights than owning the files."""
    person = powerless(project)
    before = fingerprint(project)
    checkpoint(person)
    (project / "README.md").write_text("wrecked\n")
    shutil.rmtree(project / "src")
    rollback(person)
    assert_tree(project, before)
    reprieve("verify", cwd=project, powerless=1)
