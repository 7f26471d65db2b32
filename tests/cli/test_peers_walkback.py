"""Where walkback breaks, and this does not: one test or more per failure that was seen there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support import Cli, age
from support.acts import (
    assert_tree,
    broken_by_an_agent,
    changes,
    checkpoint,
    command,
    differences,
    git,
    paths,
    powerless,
    redo,
    rollback,
    wait_until,
)
from support.tree import fingerprint, same
from support.watching import watching

# --- data loss and scope escape ---------------------------------------------------------------------------------


def test_WB02_a_repository_that_rollback_removes_comes_back_whole(cli: Cli, project: Path) -> None:
    """A new folder with its own .git is saved before it is removed; redo brings it back with its history."""
    before = fingerprint(project)
    checkpoint(cli)
    new = project / "newapp"
    new.mkdir()
    (new / "app.py").write_text("print('new')\n")
    (new / "node_modules").mkdir()
    (new / "node_modules" / "x.js").write_text("x\n")
    git("init", "-q", cwd=new)
    git("add", "-A", cwd=new)
    git("commit", "-q", "-m", "work of a day", cwd=new)
    after = fingerprint(project)

    report = rollback(cli)
    assert_tree(project, before)
    assert {"newapp", "newapp/app.py", "newapp/.git/HEAD"} <= paths(report["deleted"])

    redo(cli)
    assert_tree(project, after)
    assert "work of a day" in git("log", "--oneline", cwd=new)
    git("fsck", "--strict", cwd=new)


def test_WB03_redo_survives_a_second_rollback(cli: Cli, project: Path) -> None:
    """A rollback that finds nothing to do leaves redo as it was."""
    before = fingerprint(project)
    checkpoint(cli)
    broken_by_an_agent(project)
    broken = fingerprint(project)
    rollback(cli)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def test_WB03_redo_is_a_stack(cli: Cli, project: Path) -> None:
    """Three rollbacks in a row are taken back one by one, and then there is nothing left to redo."""
    states, ids = [fingerprint(project)], [checkpoint(cli)]
    for i in range(3):
        (project / "README.md").write_text(f"version {i}\n")
        (project / f"made-{i}").write_text("made\n")
        states.append(fingerprint(project))
        ids.append(checkpoint(cli))
    for i in (2, 1, 0):
        rollback(cli, ids[i])
        assert_tree(project, states[i])
    for i in (1, 2, 3):
        redo(cli)
        assert_tree(project, states[i])
    assert cli("redo", check=False).code != 0
    assert_tree(project, states[3])


def test_WB04_redo_survives_what_a_watcher_does(cli: Cli, project: Path) -> None:
    """Looks and unchanged checkpoints after a rollback, in any number, do not cost the redo."""
    checkpoint(cli)
    broken_by_an_agent(project)
    broken = fingerprint(project)
    rollback(cli)
    for _ in range(3):
        checkpoint(cli, "watch")
        cli("status")
        cli("log")
    redo(cli)
    assert_tree(project, broken)


def test_WB04_redo_survives_a_running_watch(cli: Cli, project: Path) -> None:
    """A rollback under a running watch, again and again, is not a step of the watch, and redo takes it back."""
    with watching(project) as watch:
        broken_by_an_agent(project)
        watch.step("README.md")
        broken = fingerprint(project)
        for _ in range(2):
            cli("rollback", "watch began", "--everything")
            good = fingerprint(project)
            # the watch has looked at what the rollback did: a change made after it is a step of its own
            (project / "later.txt").write_text("new work\n")
            watch.step("created later.txt")
            (project / "later.txt").unlink()
            watch.step("deleted later.txt")
            redo(cli)
            assert_tree(project, broken, ignore=["dir_mtime_ns"])
            assert not same(good, broken)
        assert watch.end() == 0
    caught = [e["label"] for e in cli("log", "--json").json["entries"] if e["step"] == "watch"]
    assert caught == ["later.txt"] * 4 + caught[-1:]


def test_WB04_redo_is_superseded_but_what_it_held_is_not_lost(cli: Cli, project: Path) -> None:
    """After new work on top of a rollback, the state before the rollback is still on the timeline."""
    checkpoint(cli)
    broken_by_an_agent(project)
    broken = fingerprint(project)
    safety = rollback(cli)["safety_checkpoint"]
    (project / "other.txt").write_text("new work\n")
    checkpoint(cli)
    (project / "other.txt").unlink()
    cli("rollback", safety)
    assert_tree(project, broken)


def test_WB05_redo_never_eats_an_edit_made_since(cli: Cli, project: Path) -> None:
    """A file that a person edited after the rollback is a conflict of redo: exit 4, named, nothing touched."""
    checkpoint(cli)
    broken_by_an_agent(project)
    rollback(cli)
    (project / "README.md").write_text("written by a person\n")
    mine = fingerprint(project)
    answer = cli("redo", "--json", check=False)
    assert answer.code == 4, answer
    assert answer.json["ok"] is False
    assert answer.json["error"]["code"] == "conflict"
    assert "README.md" in answer.out
    assert_tree(project, mine)


def test_WB06_every_deletion_is_listed_before_and_after(cli: Cli, project: Path) -> None:
    """A file that is not in the checkpoint goes, but the preview and the report name it, and redo has it."""
    checkpoint(cli)
    (project / "notes.md").write_text("notes of a person\n")
    broken_by_an_agent(project)
    broken = fingerprint(project)

    plan = cli("rollback", "--dry-run", "--json").json
    assert "report" not in plan or plan["report"] is None
    deleted = {action["path"] for action in plan["plan"]["actions"] if action["kind"] == "delete"}
    assert deleted == {"notes.md", "src/new.py"}
    assert_tree(project, broken)
    assert "notes.md" in cli("rollback", "--dry-run").out

    done = cli("rollback")
    assert "notes.md" in done.out
    redo(cli)
    assert_tree(project, broken)
    assert paths(rollback(cli)["deleted"]) == {"notes.md", "src/new.py"}


def test_WB07_a_killed_rollback_is_finished_and_can_be_redone(cli: Cli, project: Path) -> None:
    """SIGKILL in the middle of restoring 1,500 files; rollback again, redo: each file has the agent's content."""
    many = project / "many"
    many.mkdir()
    for i in range(1500):
        (many / f"{i}").write_text(f"good {i}\n")
    age(project)
    before = fingerprint(project)
    first = checkpoint(cli)
    for i in range(1500):
        (many / f"{i}").write_text(f"bad {i}\n")
    (project / "made.txt").write_text("made by the agent\n")
    broken = fingerprint(project)

    def is_under_way() -> bool:
        try:
            return process.poll() is not None or any((many / n).read_text()[:4] == "good" for n in ("0", "749", "999"))
        except FileNotFoundError:
            return True

    for _ in range(20):
        process = subprocess.Popen(
            command("rollback", first), cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        wait_until(is_under_way, what="the first restored file")
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            break
        redo(cli)  # it was faster than the kill
    else:
        pytest.fail("never killed in the middle")

    cli("rollback", first)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def damage(home: Path, content: bytes) -> None:
    """The bytes of one stored object are gone, as after a crash that wrote names before content."""
    hit = 0
    for pack in (home / "packs").iterdir():
        data = pack.read_bytes()
        hit += data.count(content)
        pack.write_bytes(data.replace(content, bytes(len(content))))
    assert hit == 1


def test_WB08_a_damaged_object_is_an_error_and_never_bytes(cli: Cli, project: Path, home: Path) -> None:
    """Stored bytes that are gone make a rollback fail and say so; the file is not restored empty or wrong."""
    content = os.urandom(5000)
    (project / "data.bin").write_bytes(content)
    first = checkpoint(cli)
    (project / "data.bin").write_bytes(b"the agent's")
    (project / "README.md").write_text("the agent's\n")
    damage(home, content)
    broken = fingerprint(project)
    answer = cli("rollback", first, "--json", check=False)
    assert answer.code == 13, answer
    assert answer.json["error"]["code"] == "store_corrupted"
    assert_tree(project, broken)
    verified = cli("verify", check=False)
    assert verified.code == 13
    assert "data.bin" in verified.out + verified.err
    rollback(cli, first, "--only", "README.md")
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"


def test_WB08_the_next_checkpoint_of_the_same_content_heals_it(cli: Cli, project: Path, home: Path) -> None:
    """A damaged object is not trusted because its name exists: capturing the same bytes again stores them anew."""
    content = os.urandom(5000)
    (project / "data.bin").write_bytes(content)
    first = checkpoint(cli)
    damage(home, content)
    (project / "copy.bin").write_bytes(content)
    second = checkpoint(cli)
    (project / "data.bin").write_bytes(b"wrecked")
    (project / "copy.bin").write_bytes(b"wrecked")
    rollback(cli, second)
    assert (project / "copy.bin").read_bytes() == content
    rollback(cli, first)
    assert (project / "data.bin").read_bytes() == content
    cli("verify")


def test_WB11_revert_is_an_entry_of_its_own(cli: Cli, project: Path) -> None:
    """After a revert the next wreck of the same file is rolled back too, and the revert itself can be taken back."""
    good = (project / "README.md").read_text()
    checkpoint(cli)
    (project / "README.md").write_text("first wreck\n")
    cli("revert", "README.md")
    assert (project / "README.md").read_text() == good
    redo(cli)
    assert (project / "README.md").read_text() == "first wreck\n"
    cli("revert", "README.md")
    (project / "README.md").write_text("second wreck\n")
    rollback(cli)
    assert (project / "README.md").read_text() == good
    kinds = [entry["kind"] for entry in cli("log", "--json", "--all").json["entries"]]
    assert kinds.count("revert") == 2


def test_WB16_a_moved_project_keeps_its_history(cli: Cli, project: Path, tmp_path: Path) -> None:
    """After a move and a rename the rollback works in the new place, and nothing appears in the old one."""
    before = fingerprint(project)
    first = checkpoint(cli)
    broken_by_an_agent(project)
    moved = tmp_path / "elsewhere" / "renamed"
    moved.parent.mkdir()
    project.rename(moved)
    rollback(cli, first, cwd=moved)
    assert_tree(moved, before)
    assert not project.exists()


# --- says success while not restoring ---------------------------------------------------------------------------


def test_WB17_an_unreadable_file_costs_only_itself(cli: Cli, project: Path) -> None:
    """The rest is captured, the gap is named in the answer and in status, and rollback restores the rest."""
    person = powerless(project)
    (project / "locked.txt").write_text("nobody reads this\n")
    (project / "locked.txt").chmod(0)
    before = fingerprint(project)
    made = person("checkpoint", "--json", check=False)
    assert made.code in (0, 1)
    assert paths(made.json["checkpoint"]["gaps"]) == {"locked.txt"}
    assert "locked.txt" in person("checkpoint", check=False).out + person("status", check=False).out
    broken_by_an_agent(project)
    rollback(person)
    assert_tree(project, before)


def test_WB18_a_torn_store_is_refused_and_never_nothing_to_undo(cli: Cli, project: Path, home: Path) -> None:
    """A database that lost its end is an error with exit 13 or 10; the tree stays as it is."""
    checkpoint(cli)
    for i in range(20):
        (project / "README.md").write_text(f"{i}\n" * 50)
        checkpoint(cli, f"label {i}")
    broken_by_an_agent(project)
    broken = fingerprint(project)
    database = home / "store.db"
    os.truncate(database, database.stat().st_size * 3 // 4 // 4096 * 4096)
    for args in (("rollback",), ("status",), ("checkpoint",), ("log", "--all"), ("verify",)):
        answer = cli(*args, check=False)
        assert answer.code in (10, 13), (args, answer)
    assert_tree(project, broken)


def test_WB18_a_torn_tail_of_unfinished_work_is_cut_off(cli: Cli, project: Path, home: Path) -> None:
    """Bytes that a killed writer left behind the last committed ones are no obstacle for anybody."""
    before = fingerprint(project)
    first = checkpoint(cli)
    for pack in (home / "packs").iterdir():
        with pack.open("ab") as file:
            file.write(os.urandom(777))
    broken_by_an_agent(project)
    checkpoint(cli)
    rollback(cli, first)
    assert_tree(project, before)
    cli("verify")


def test_WB18_a_changed_row_is_found(cli: Cli, project: Path, home: Path) -> None:
    """Text in the middle of the timeline that was changed behind our back is named by verify."""
    checkpoint(cli, "a label that is easily found")
    checkpoint(cli, "later")
    database = home / "store.db"
    data = database.read_bytes()
    assert b"a label that is easily found" in data
    database.write_bytes(data.replace(b"a label that is easily found", b"a label that is easily faked"))
    answer = cli("verify", "--json", check=False)
    assert answer.code == 13, answer


def test_WB19_no_name_is_left_out_by_default(cli: Cli, project: Path) -> None:
    """vendor/, dist/, node_modules/ and a file named build are protected like everything else."""
    for folder in ("vendor", "dist", "node_modules", "target", ".venv", "__pycache__", ".idea"):
        (project / folder).mkdir()
        (project / folder / "x").write_text("x\n")
    (project / "build").write_text("a file, not a folder\n")
    before = fingerprint(project)
    checkpoint(cli)
    for folder in ("vendor", "dist", "node_modules", "target", ".venv"):
        shutil.rmtree(project / folder)
    (project / "build").write_text("wrecked\n")
    (project / "__pycache__" / "x").write_text("wrecked\n")
    rollback(cli)
    assert_tree(project, before)


def test_WB20_diff_is_tree_against_tree(cli: Cli, project: Path) -> None:
    """New, deleted, edited, re-moded and re-typed paths are in the diff; untouched links are not; new ones revert."""
    checkpoint(cli)
    (project / "new.sh").write_text("#!/bin/sh\n")
    (project / "README.md").write_text("edited\n")
    (project / "src" / "util.py").unlink()
    (project / "tool.sh").chmod(0o700)
    (project / "data.bin").unlink()
    (project / "data.bin").mkdir()
    expected = {
        "new.sh": "created",
        "README.md": "modified",
        "src/util.py": "deleted",
        "tool.sh": "mode",
        "data.bin": "type",
    }
    assert differences(cli) == expected
    assert changes(cli) == expected
    cli("revert", "new.sh")
    assert not (project / "new.sh").exists()
    assert "new.sh" not in differences(cli)


def test_WB21_status_counts_real_changes(cli: Cli, project: Path) -> None:
    """An unchanged project has no changes, also after files were read, touched by name or re-saved unchanged."""
    checkpoint(cli)
    assert changes(cli) == {}
    (project / "README.md").read_text()
    copy = (project / "README.md").read_bytes()
    st = (project / "README.md").stat()
    (project / "README.md").write_bytes(copy)
    os.utime(project / "README.md", ns=(st.st_atime_ns, st.st_mtime_ns))
    assert changes(cli) == {}


def test_WB22_a_later_checkpoint_hides_nothing(cli: Cli, project: Path) -> None:
    """What changed before the last checkpoint is seen by asking since an earlier one, or between any two."""
    first = checkpoint(cli)
    (project / "README.md").write_text("edited\n")
    second = checkpoint(cli)
    (project / "src" / "util.py").write_text("edited too\n")
    third = checkpoint(cli)
    assert changes(cli) == {}
    assert changes(cli, "--since", first) == {"README.md": "modified", "src/util.py": "modified"}
    assert differences(cli, first) == {"README.md": "modified", "src/util.py": "modified"}
    assert differences(cli, first, second) == {"README.md": "modified"}
    assert differences(cli, second, third) == {"src/util.py": "modified"}
    assert differences(cli, third, first) == {"README.md": "modified", "src/util.py": "modified"}


def test_WB23_a_path_is_one_path_however_it_is_written(cli: Cli, project: Path) -> None:
    """`README.md`, `./README.md`, `src/../README.md` and the absolute path name the same file."""
    good = (project / "README.md").read_text()
    checkpoint(cli)
    for spelled in ("README.md", "./README.md", "src/../README.md", f"{project}/README.md", ".//README.md"):
        (project / "README.md").write_text("wrecked\n")
        cli("revert", spelled)
        assert (project / "README.md").read_text() == good, spelled


def test_WB24_paths_are_those_of_the_directory_one_is_in(cli: Cli, project: Path) -> None:
    """In a sub-directory `a.txt` is the file there, not the one of the same name at the top."""
    (project / "sub").mkdir()
    (project / "a.txt").write_text("top\n")
    (project / "sub" / "a.txt").write_text("below\n")
    checkpoint(cli)
    (project / "a.txt").write_text("top, wrecked\n")
    (project / "sub" / "a.txt").write_text("below, wrecked\n")
    cli("revert", "a.txt", cwd=project / "sub")
    assert (project / "sub" / "a.txt").read_text() == "below\n"
    assert (project / "a.txt").read_text() == "top, wrecked\n"
    cli("revert", "../a.txt", cwd=project / "sub")
    assert (project / "a.txt").read_text() == "top\n"
    (project / "a.txt").write_text("top, wrecked\n")
    cli("revert", "a.txt", "-C", str(project), cwd=project / "sub")
    assert (project / "a.txt").read_text() == "top\n"


@pytest.mark.parametrize("harm", ["empty", "garbage", "gone", "cut"])
def test_WB25_broken_caches_cost_no_history_and_no_id(cli: Cli, project: Path, home: Path, harm: str) -> None:
    """A truncated, garbled or missing cache is rebuilt; ids stay unique and the first checkpoint stays reachable."""
    before = fingerprint(project)
    first = checkpoint(cli)
    (project / "README.md").write_text("two\n")
    second = checkpoint(cli)
    for cache in (home / "index").rglob("*"):
        data = cache.read_bytes()
        if harm == "gone":
            cache.unlink()
        else:
            cache.write_bytes({"empty": b"", "garbage": os.urandom(len(data)), "cut": data[: len(data) // 2]}[harm])
    (project / "src" / "util.py").write_text("three\n")
    third = checkpoint(cli)
    ids = [entry["id"] for entry in cli("log", "--json", "--all").json["entries"]]
    assert len(ids) == len(set(ids))
    assert {first, second, third} <= set(ids)
    rollback(cli, first)
    assert_tree(project, before)
