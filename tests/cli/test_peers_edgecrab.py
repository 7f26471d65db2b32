"""Where EdgeCrab's shadow-git checkpoints break, and this does not: one test or more per failure that was seen there.

EC-06 is told in tests/security/test_never_through_the_tree.py; EC-07, EC-12 and EC-17 in test_git_has_no_say.py.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from support import Cli
from support.acts import (
    assert_tree,
    changes,
    checkpoint,
    command,
    differences,
    git,
    paths,
    powerless,
    redo,
    rollback,
    size_of,
)
from support.tree import fingerprint

ODD_TEXTS = {
    "trailing.txt": b"ends with one newline\n",
    "none.txt": b"ends with none",
    "many.txt": b"ends with three\n\n\n",
    "leading.txt": b"\n\n    starts with blank lines and an indent\n",
    "blank.txt": b"   \t \n",
    "empty.txt": b"",
    "crlf.txt": b"a\r\nb\r\n",
    "bom.txt": b"\xef\xbb\xbfbom\n",
    "nul.txt": b"a\x00b\n",
}


def test_EC01_a_restore_of_unchanged_files_changes_nothing(cli: Cli, project: Path) -> None:
    """Rolling back an unchanged tree touches nothing: same bytes, inodes and times."""
    for name, data in ODD_TEXTS.items():
        (project / name).write_bytes(data)
    checkpoint(cli)
    before = fingerprint(project)
    inodes = {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in project.rglob("*")}
    report = rollback(cli)
    assert_tree(project, before)
    assert {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in project.rglob("*")} == inodes
    assert report["restored"] == [] and report["deleted"] == []


def test_EC01_text_comes_back_byte_by_byte(cli: Cli, project: Path) -> None:
    """Trailing newlines, leading blanks and empty files are bytes like any other."""
    for name, data in ODD_TEXTS.items():
        (project / name).write_bytes(data)
    before = fingerprint(project)
    checkpoint(cli)
    for name, data in ODD_TEXTS.items():
        (project / name).write_bytes(data.strip() + b"!")
    rollback(cli)
    assert_tree(project, before)


def test_EC02_binary_comes_back_byte_by_byte(cli: Cli, project: Path) -> None:
    """Bytes that are no text in any encoding come back as they were."""
    data = bytes(range(128, 192))
    (project / "small.bin").write_bytes(data)
    (project / "all.bin").write_bytes(bytes(range(256)) * 300)
    before = fingerprint(project)
    checkpoint(cli)
    (project / "small.bin").write_bytes(b"text now")
    (project / "all.bin").unlink()
    rollback(cli)
    assert_tree(project, before)
    assert (project / "small.bin").read_bytes() == data


def test_EC03_a_file_that_the_checkpoint_does_not_have_is_not_emptied(cli: Cli, project: Path) -> None:
    """Reverting a file made since removes it as a whole, says so, and redo has every byte of it."""
    checkpoint(cli)
    (project / "later.txt").write_text("written after the checkpoint\n")
    report = cli("revert", "later.txt", "--json").json["report"]
    assert paths(report["deleted"]) == {"later.txt"}
    assert not (project / "later.txt").exists()
    redo(cli)
    assert (project / "later.txt").read_text() == "written after the checkpoint\n"


@pytest.mark.parametrize(
    "spelled", ["{outside}", "../outside.txt", "src/../../outside.txt", "{project}-twin/a", "nowhere"]
)
def test_EC03_paths_that_are_not_inside_are_refused(cli: Cli, project: Path, tmp_path: Path, spelled: str) -> None:
    """An absolute or climbing path, a look-alike of the root, or a name nobody has ever had: refused, untouched."""
    outside = tmp_path / "outside.txt"
    outside.write_text("not ours\n")
    twin = tmp_path / f"{project.name}-twin"
    twin.mkdir()
    (twin / "a").write_text("not ours either\n")
    checkpoint(cli)
    before = fingerprint(project)
    for verb in ("revert", "forget"):
        answer = cli(verb, spelled.format(outside=outside, project=project), "--json", check=False)
        assert answer.code in (2, 5), answer
        assert answer.json["ok"] is False
    assert outside.read_text() == "not ours\n"
    assert (twin / "a").read_text() == "not ours either\n"
    assert_tree(project, before)


def test_EC04_what_a_rollback_replaces_is_saved_and_can_be_seen_first(cli: Cli, project: Path) -> None:
    """The preview shows what would go; the rollback names the checkpoint that holds it; redo brings it back."""
    checkpoint(cli)
    (project / "README.md").write_text("hours of a person's work\n")
    mine = fingerprint(project)
    assert "README.md" in cli("rollback", "--dry-run").out
    assert_tree(project, mine)
    report = rollback(cli)
    assert report["safety_checkpoint"] in {entry["id"] for entry in cli("log", "--all", "--json").json["entries"]}
    assert report["redo"]
    redo(cli)
    assert_tree(project, mine)


def test_EC05_an_id_means_the_same_for_ever(cli: Cli, project: Path) -> None:
    """The id that a checkpoint answers is the one that restores it, whatever came after; ~N counts from the newest."""
    made = []
    for i in range(4):
        (project / "README.md").write_text(f"version {i}\n")
        made.append(cli("checkpoint", f"label {i}").out.split()[-1])
    for back, i in enumerate((3, 2, 1, 0)):
        plan = cli("rollback", f"~{back}", "--dry-run", "--json").json["plan"]
        assert plan["target"] == made[i]
    for i in (2, 0, 3, 1):
        rollback(cli, made[i])
        assert (project / "README.md").read_text() == f"version {i}\n"
        rollback(cli, f"label {i}")
        assert (project / "README.md").read_text() == f"version {i}\n"


def test_EC08_untracked_and_ignored_files_are_protected(cli: Cli, project: Path) -> None:
    """In a git project, drafts that git does not track and files that it ignores come back after rm."""
    git("init", "-q", cwd=project)
    git("add", "README.md", cwd=project)
    git("commit", "-q", "-m", "first", cwd=project)
    (project / "draft.md").write_text("a new draft\n")
    (project / "build").mkdir()
    (project / "build" / "out.o").write_bytes(b"\x7fELF")
    before = fingerprint(project)
    checkpoint(cli)
    for name in ("draft.md", ".env"):
        (project / name).unlink()
    shutil.rmtree(project / "build")
    rollback(cli)
    assert_tree(project, before)


def test_EC09_files_made_after_the_checkpoint_go(cli: Cli, project: Path) -> None:
    """A rollback leaves the tree of the checkpoint, not a union of old and new."""
    before = fingerprint(project)
    checkpoint(cli)
    (project / "src" / "added.py").write_text("added\n")
    (project / "folder" / "in" / "folder").mkdir(parents=True)
    (project / "folder" / "in" / "folder" / "x").write_text("x\n")
    report = rollback(cli)
    assert_tree(project, before)
    assert {"src/added.py", "folder/in/folder/x"} <= paths(report["deleted"])


def test_EC10_what_was_deleted_between_two_checkpoints_stays_deleted(cli: Cli, project: Path) -> None:
    """Restoring the newer one does not resurrect what only the older one has."""
    first = checkpoint(cli)
    (project / "src" / "util.py").unlink()
    shutil.rmtree(project / "empty")
    second_tree = fingerprint(project)
    second = checkpoint(cli)
    (project / "README.md").write_text("wrecked\n")
    rollback(cli, second)
    assert_tree(project, second_tree)
    rollback(cli, first)
    assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
    rollback(cli, second)
    assert_tree(project, second_tree)


def test_EC11_a_difficult_file_does_not_stop_later_checkpoints(cli: Cli, project: Path) -> None:
    """After a file became a directory, and with a read-only file, an ordinary user's checkpoints still take all."""
    person = powerless(project)
    (project / "read-only.txt").write_text("one\n")
    (project / "read-only.txt").chmod(0o444)
    first_tree = fingerprint(project)
    first = checkpoint(person)
    (project / "README.md").unlink()
    (project / "README.md").mkdir()
    (project / "README.md" / "inner").write_text("inner\n")
    (project / "read-only.txt").chmod(0o644)
    (project / "read-only.txt").write_text("two\n")
    (project / "read-only.txt").chmod(0o444)
    second_tree = fingerprint(project)
    second = checkpoint(person)
    (project / "src" / "main.py").write_text("three\n")
    third_tree = fingerprint(project)
    third = checkpoint(person)
    for id, tree in ((first, first_tree), (second, second_tree), (third, third_tree)):
        rollback(person, id)
        assert_tree(project, tree)


def test_EC13_concurrent_checkpoints_are_all_recorded(cli: Cli, project: Path) -> None:
    """Six at once, each after a change of its own: six ids, each with a tree that restores."""
    checkpoint(cli)
    processes = []
    for i in range(6):
        (project / f"by-{i}.txt").write_text(f"{i}\n")
        processes.append(
            subprocess.Popen(command("checkpoint"), cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        )
    ids = [process.communicate(timeout=60)[0].split()[-1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * 6
    assert len(set(ids)) == 6
    for i, id in enumerate(ids):
        rollback(cli, id)
        assert (project / f"by-{i}.txt").read_text() == f"{i}\n"


def test_EC14_diff_says_what_changed_and_nothing_else(cli: Cli, project: Path) -> None:
    """An unchanged file is not in it; a changed one is there with its lines; any two checkpoints can be compared."""
    first = checkpoint(cli)
    assert differences(cli) == {}
    (project / "src" / "util.py").write_text("ANSWER = 43\n")
    shown = cli("diff", check=False).out
    assert "-ANSWER = 42" in shown and "+ANSWER = 43" in shown
    assert "main.py" not in shown
    change = cli("diff", "--json", check=False).json["changes"][0]
    assert (change["path"], change["added"], change["removed"]) == ("src/util.py", 1, 1)
    second = checkpoint(cli)
    (project / "README.md").write_text("later\n")
    between = cli("diff", first, second, check=False).out
    assert "+ANSWER = 43" in between and "README" not in between


def test_EC15_modes_times_empty_folders_and_links_come_back(cli: Cli, project: Path) -> None:
    """A deleted script is executable again; mtimes, empty directories, hard links and xattrs are exact."""
    os.link(project / "README.md", project / "same")
    (project / "odd-mode").write_text("x\n")
    (project / "odd-mode").chmod(0o641)
    before = fingerprint(project)
    checkpoint(cli)
    for name in ("tool.sh", "README.md", "odd-mode"):
        (project / name).unlink()
    (project / "empty").rmdir()
    rollback(cli)
    assert_tree(project, before)
    assert stat.S_IMODE((project / "tool.sh").stat().st_mode) == 0o755


def test_EC16_no_name_depth_or_number_is_dropped(cli: Cli, project: Path) -> None:
    """Non-ASCII names, more than 2,000 files, deep folders and nested repositories are all captured."""
    (project / "größe-日本-🙂.txt").write_text("named\n")
    (project / "many").mkdir()
    for i in range(2_500):
        (project / "many" / f"{i}").write_text(str(i))
    deep = project
    for i in range(30):
        deep = deep / f"level-{i}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("bottom\n")
    nested = project / "nested"
    nested.mkdir()
    git("init", "-q", cwd=nested)
    (nested / "n").write_text("n\n")
    git("add", "-A", cwd=nested)
    git("commit", "-q", "-m", "nested", cwd=nested)
    before = fingerprint(project)
    checkpoint(cli)
    shutil.rmtree(project / "many")
    shutil.rmtree(nested)
    shutil.rmtree(project / "level-0")
    (project / "größe-日本-🙂.txt").unlink()
    rollback(cli)
    assert_tree(project, before)
    git("fsck", cwd=nested)


def test_EC18_prune_really_prunes(cli: Cli, project: Path, home: Path) -> None:
    """keep-last 3 leaves three, says before what would go, and the bytes of the others are freed."""
    ids = []
    for _ in range(8):
        (project / "data.bin").write_bytes(os.urandom(1 << 20))
        ids.append(checkpoint(cli))
    full = size_of(home)
    told = cli("prune", "--keep-last", "3", "--keep-days", "0", "--dry-run", "--json")
    assert size_of(home) >= full - (1 << 16)
    assert all(id in told.out for id in ids[:5]) and not any(id in told.out for id in ids[5:])
    cli("prune", "--yes", "--keep-last", "3", "--keep-days", "0")
    cli("gc")
    assert size_of(home) < full - (4 << 20)
    for id in ids[5:]:
        rollback(cli, id)
    before = fingerprint(project)
    gone = cli("rollback", ids[0], "--json", check=False)
    assert gone.code in (2, 5), gone
    assert_tree(project, before)


@pytest.mark.parametrize("count", ["-1", "x", "99999999999999999999999"])
def test_EC18_a_senseless_limit_is_an_error(cli: Cli, project: Path, count: str) -> None:
    """A limit that is no number of checkpoints is refused, and what there is stays."""
    id = checkpoint(cli)
    answer = cli("prune", "--yes", f"--keep-last={count}", "--keep-days", "0", check=False)
    assert answer.code in (0, 2), answer
    rollback(cli, id)


def test_EC18_keeping_none_still_keeps_the_newest(cli: Cli, project: Path) -> None:
    """keep-last 0 is either refused or leaves the state that is there now: there is always a way back to it."""
    checkpoint(cli)
    (project / "README.md").write_text("second\n")
    newest = checkpoint(cli)
    answer = cli("prune", "--yes", "--keep-last", "0", "--keep-days", "0", check=False)
    assert answer.code in (0, 2), answer
    (project / "README.md").write_text("wrecked\n")
    rollback(cli, newest)
    assert (project / "README.md").read_text() == "second\n"


def test_EC19_nothing_is_created_unasked(cli: Cli, project: Path, home: Path, tmp_path: Path) -> None:
    """Looking at, or taking back, a folder that is not protected makes no workspace, no store and no file."""
    before = fingerprint(project)
    for args in (("status",), ("log",), ("diff",), ("rollback",), ("redo",), ("revert", "README.md"), ("prune",)):
        answer = cli(*args, "--json", check=False)
        assert answer.code == 3, (args, answer)
        assert any("reprieve init" in hint for hint in answer.json["error"]["hints"])
    assert_tree(project, before)
    assert not home.exists()
    for args in (("--help",), ("config",), ("completion", "bash")):
        cli(*args)
    cli("doctor", check=False)
    assert not home.exists()


def test_EC19_disabled_is_visible(cli: Cli, project: Path) -> None:
    """REPRIEVE_DISABLED turns hooks off, not the person's own commands; and doctor says that it is set."""
    env = {"REPRIEVE_DISABLED": "1"}
    before = fingerprint(project)
    checkpoint(cli, env=env)
    (project / "README.md").write_text("wrecked\n")
    assert "README.md" in changes(cli, env=env)
    rollback(cli, env=env)
    assert_tree(project, before)
    assert "REPRIEVE_DISABLED" in cli("doctor", env=env, check=False).out
