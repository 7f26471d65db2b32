"""`reprieve watch`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from reprieve.app.stopping import Stop
from reprieve.app.watch import Watch, Watching
from reprieve.model.reporter import Reporter
from support import Cli
from support.acts import assert_tree, changes, redo, script, wait_until
from support.settings import write_accepted
from support.tree import fingerprint
from support.watching import watching

STORM = """
import itertools, os, sys
print("ready", flush=True)
for n in itertools.count():
    with open("storm.new", "w") as file:
        file.write(str(n))
    os.rename("storm.new", "storm")
"""


def steps(cli: Cli) -> list[str]:
    """The labels of the steps that were caught, newest first."""
    return [e["label"] for e in cli("log", "--json").json["entries"] if e["step"] == "watch"]


def test_a_change_is_a_line_and_a_checkpoint(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        (project / "README.md").write_text("changed")
        first = watch.step("modified README.md")
        (project / "src" / "util.py").unlink()
        second = watch.step("deleted src/util.py")
        assert watch.end() == 0
    entries = {e["id"]: e for e in cli("log", "--json").json["entries"]}
    assert [(entries[id]["label"], entries[id]["changed"]) for id in (first, second)] == [
        ("README.md", 1),
        ("src/util.py", 1),
    ]
    cli("rollback", first)
    assert (project / "src" / "util.py").exists()


def test_nothing_is_recorded_and_nothing_held_while_nothing_changes(cli: Cli, project: Path, home: Path) -> None:
    with watching(project) as watch:
        locks = [path for path in (home / "locks").iterdir() if path.name != "gc"]
        assert locks
        for path in locks:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.utime(project / "README.md")  # no change to a person
        (project / "marker").touch()
        watch.step("created marker")
        assert watch.end() == 0
    assert steps(cli) == ["marker"]


def test_once_ends_after_the_first_change(cli: Cli, project: Path) -> None:
    with watching(project, "--once", "--json", is_ready=False) as watch:
        wait_until(lambda: "watch began" in cli("log", check=False).out, what="it")  # no workspace is there at first
        (project / "a").touch()
        (project / "b").touch()
        assert watch.rest() == 0
        answer = json.loads(watch.lines[-1])
    assert (answer["ok"], answer["command"]) == (True, "watch")
    assert [step["changed"] for step in answer["steps"]] == [2]
    assert changes(cli) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_end_it_takes_a_last_checkpoint(cli: Cli, project: Path, number: signal.Signals) -> None:
    with watching(project) as watch:
        (project / "last words").touch()
        assert watch.end(number) == 0
    assert steps(cli) == ["last words"]


def test_asked_to_end_during_a_step_it_takes_one_more(cli: Cli, project: Path) -> None:
    """What changed after that step had looked, and before the end was asked for, is caught as well."""

    class Busy(Watching):
        def begins(self, root: str, first: object) -> None:
            (project / "first").touch()

        def stepped(self, step: object) -> None:
            if not stop.is_asked:
                (project / "late").touch()
                signal.raise_signal(signal.SIGTERM)

    with Stop() as stop:
        Watch(str(project), stop=stop, watching=Busy(), reporter=Reporter()).run()
    assert steps(cli) == ["late", "first"]


def test_what_comes_together_is_one_step(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        for number in range(300):
            (project / f"n{number}").write_text("x")
        watch.step("and 297 more")
        assert watch.end() == 0
    assert len(steps(cli)) == 1


def test_a_storm_that_does_not_end_has_checkpoints(cli: Cli, project: Path) -> None:
    with watching(project) as watch, script(STORM, cwd=project) as storm:
        watch.step("storm")
        watch.step("storm")
        assert storm.poll() is None
        storm.kill()
        storm.wait()
        assert watch.end() == 0
    assert len(steps(cli)) <= 4
    assert changes(cli) == {}


def test_new_folders_are_followed_however_quickly_they_fill(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        for number in range(150):
            deep = project / f"d{number}" / "e" / "f"
            deep.mkdir(parents=True)
            (deep / "file").write_text("first")
        watch.step("created d0")
        for number in range(0, 150, 7):
            (project / f"d{number}" / "e" / "f" / "file").write_text("second")
            watch.step(f"modified d{number}/e/f/file")
        assert watch.end() == 0
    assert changes(cli) == {}


def test_a_folder_that_moves_is_followed_inside_and_forgotten_outside(cli: Cli, project: Path, tmp_path: Path) -> None:
    with watching(project) as watch:
        (project / "src").rename(project / "source")
        watch.step("created source,")
        (project / "source" / "util.py").write_text("in its new place")
        watch.step("modified source/util.py")
        (project / "source").rename(tmp_path / "away")
        watch.step("deleted source")
        (tmp_path / "away" / "util.py").write_text("not ours")
        (tmp_path / "away" / "more").mkdir()
        (tmp_path / "away").rename(project / "back")
        watch.step("created back")
        (project / "back" / "more" / "x").touch()
        watch.step("created back/more/x")
        assert watch.end() == 0
    assert len(steps(cli)) == 5


def test_what_is_excluded_wakes_nobody_until_it_no_longer_is(cli: Cli, project: Path) -> None:
    write_accepted(project, 'exclude = ["junk/"]\n')
    (project / "junk").mkdir()
    with watching(project) as watch:
        (project / "junk" / "a").touch()
        (project / "real").touch()
        watch.step("created real")
        (project / "reprieve.toml").write_text("")
        watch.step("modified reprieve.toml")
        (project / "junk" / "b").touch()
        watch.step("created junk/b")
        assert watch.end() == 0


def test_a_store_inside_the_tree_does_not_wake_it(cli: Cli, project: Path) -> None:
    env = {"REPRIEVE_HOME": str(project / ".store")}
    with watching(project, env=env) as watch:
        (project / "a").touch()
        watch.step("created a")
        (project / "b").touch()
        watch.step("created b")
        assert watch.end() == 0
    entries = cli("log", "--json", env=env).json["entries"]
    assert [e["label"] for e in entries] == ["b", "a", "watch began"]


def test_a_folder_that_is_moved_is_watched_on(cli: Cli, project: Path, tmp_path: Path) -> None:
    with watching(project) as watch:
        project.rename(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "new").touch()
        watch.step("created new")
        assert watch.end() == 0
    tmp_path.joinpath("elsewhere").rename(project)
    assert changes(cli) == {}


def test_a_folder_that_is_deleted_ends_it_and_its_history_stays(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        (project / "precious").write_text("work")
        id = watch.step("created precious")
        shutil.rmtree(project)
        assert watch.rest() == 3
        said = "\n".join(watch.lines)
    assert "is gone" in said
    project.mkdir()
    cli("rollback", id)
    assert (project / "precious").read_text() == "work"


def namespace(limit: int) -> list[str]:
    """A user namespace in which only so many inotify watches are allowed."""
    words = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    words.append(f'echo {limit} > /proc/sys/user/max_inotify_watches && exec "$0" "$@"')
    if not shutil.which("unshare") or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    return words


@pytest.mark.parametrize("limit", [0, 2, 3])  # none at all, too few for the start, too few for a new folder
def test_without_enough_watches_it_says_so_and_looks_by_itself(cli: Cli, project: Path, limit: int) -> None:
    with watching(project, before=namespace(limit), is_ready=False) as watch:
        if limit < 3:
            assert "inotify" in watch.until("Warning:", "instead")
        watch.until("Watching")
        (project / "one" / "two" / "three").mkdir(parents=True)
        (project / "one" / "two" / "three" / "x").write_text("first")
        watch.step("created one")
        if limit == 3:
            assert any("Warning:" in line for line in watch.lines)
        (project / "one" / "two" / "three" / "x").write_text("later")
        watch.step("modified one/two/three/x")
        assert watch.end() == 0
    assert changes(cli) == {}


def test_step_watch_is_what_it_caught_last(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        (project / "one").touch()
        watch.step("created one")
        (project / "two").touch()
        id = watch.step("created two")
        assert watch.end() == 0
    assert cli("log", "--json").json["entries"][0]["step"] == "watch"
    plan = cli("rollback", "step:watch", "--dry-run", "--json").json["plan"]
    assert [action["path"] for action in plan["actions"] if action["verb"] == "delete"] == ["two"]
    assert cli("undo", "step:watch", "--json").json["report"]["deleted"] == ["two"]
    assert (project / "one").exists()
    cli("redo")
    assert cli("undo", id, "--json").json["report"]["deleted"] == ["two"]


# --- checks -----------------------------------------------------------------------------------------------------


def test_the_step_that_turned_the_check_red_is_named(cli: Cli, project: Path) -> None:
    with watching(project, "--check", "test -e README.md") as watch:
        watch.until("the check is green")
        (project / "harmless").touch()
        watch.step("created harmless")
        watch.until("the check is green")
        (project / "README.md").unlink()
        id = watch.step("deleted README.md")
        watch.until(id, "turned the check red", "exit code 1")
        watch.until(f"reprieve undo {id}")
        (project / "more").touch()
        watch.until("the check is red")
        (project / "README.md").touch()
        watch.until("the check is green again")
        assert watch.end() == 0
    assert "turned" not in "\n".join(watch.lines).partition("turned the check red")[2]


def test_that_step_is_taken_back_and_redo_brings_it(cli: Cli, project: Path) -> None:
    before = fingerprint(project)
    with watching(project, "--check", "! grep -rq BUG .", "--on-failure", "rollback") as watch:
        watch.until("green")
        (project / "src" / "main.py").write_text("BUG\n")
        (project / "new").mkdir()
        (project / "new" / "x").write_text("BUG\n")
        watch.until("turned the check red")
        watch.until("taken back", "reprieve redo")
        assert_tree(project, before)
        assert watch.end() == 0
    redo(cli)
    assert (project / "new" / "x").read_text() == "BUG\n"


def test_what_a_person_does_while_the_check_runs_stays(cli: Cli, project: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    check = f"test ! -e bug || {{ read x < {gate}; exit 1; }}"
    with watching(project, "--check", check, "--on-failure", "rollback") as watch:
        watch.until("green")
        (project / "bug").touch()
        (project / "README.md").write_text("the agent's\n")
        watch.step("created bug")
        with gate.open("w") as file:
            (project / "mine.txt").write_text("a person's\n")
            file.write("go\n")
        watch.until("taken back")
        assert watch.end() == 0
    assert not (project / "bug").exists()
    assert (project / "README.md").read_text().startswith("# A project")
    assert (project / "mine.txt").read_text() == "a person's\n"


def test_a_file_that_a_person_went_on_with_is_not_taken_back(cli: Cli, project: Path, tmp_path: Path) -> None:
    gate, told = tmp_path / "gate", tmp_path / "told"
    os.mkfifo(gate)
    # what was written while it ran is checked again, and nobody opens the gate a second time
    check = f"test ! -e bug || {{ test -e {told} || read x < {gate}; touch {told}; exit 1; }}"
    with watching(project, "--check", check, "--on-failure", "rollback") as watch:
        watch.until("green")
        (project / "bug").touch()
        (project / "README.md").write_text("the agent's\n")
        id = watch.step("created bug")
        with gate.open("w") as file:
            (project / "README.md").write_text("the agent's, then a person's\n")
            file.write("go\n")
        watch.until("not taken back", "README.md")
        watch.until(f"reprieve undo {id}")
        (project / "bug").unlink()
        watch.until("green again")
        assert watch.end() == 0
    assert (project / "README.md").read_text() == "the agent's, then a person's\n"


def test_a_check_that_writes_does_not_check_itself_for_ever(cli: Cli, project: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    check = f"echo x >> {count}; date +%N > report; mkdir -p cache; date +%N > cache/$$"
    with watching(project, "--check", check) as watch:
        watch.until("green")
        (project / "work").touch()
        watch.step("created work")
        watch.until("green")
        (project / "work2").touch()
        watch.step("created work2")
        watch.until("green")
        runs = -1
        while runs != len(count.read_text()):  # nothing new for a second, which is three times what it takes to settle
            runs = len(count.read_text())
            watch_for(watch.process, 1.0)
        assert watch.end() == 0
    assert len(count.read_text().split()) <= 15


def watch_for(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Let it be for a while; it must not end."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


def test_a_check_that_was_red_before_blames_nobody(cli: Cli, project: Path) -> None:
    with watching(project, "--check", "false", "--on-failure", "rollback") as watch:
        watch.until("the check is red")
        (project / "work").touch()
        watch.step("created work")
        watch.until("the check is red")
        assert watch.end() == 0
    assert (project / "work").exists()


def test_ctrl_c_during_a_check_is_no_verdict(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The check dies with its processes; the step it was about stays."""
    pid = tmp_path / "pid"
    check = f"test ! -e work || {{ echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600; }}"
    with watching(project, "--check", check, "--on-failure", "rollback") as watch:
        watch.until("green")
        (project / "work").touch()
        wait_until(pid.exists, what="the check to run")
        assert watch.end() == 0
        assert "turned" not in "\n".join(watch.lines)
    assert (project / "work").exists()
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), what="the check to end")
    assert steps(cli) == ["work"]


def test_once_with_a_red_check_is_exit_1(cli: Cli, project: Path) -> None:
    with watching(project, "--once", "--check", "test ! -e bug") as watch:
        watch.until("green")
        (project / "bug").touch()
        assert watch.rest() == 1


def test_completion(cli: Cli) -> None:
    offered = cli("__complete", "--", "watch", "--on-failure", "").out.split()
    assert offered == ["keep", "rollback"]
