"""`reprieve track`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support import Cli
from support.settings import accept_settings, write_accepted
from support.tree import fingerprint


@pytest.fixture
def dotfile(tmp_path: Path) -> Path:
    """A file in a folder with other things that are none of our business."""
    folder = tmp_path / "someone"
    folder.mkdir()
    (folder / "other").write_text("not tracked")
    (folder / "big").mkdir()
    (folder / "big" / "file").write_text("not tracked")
    (folder / ".zshrc").write_text("export A=1\n")
    return folder / ".zshrc"


def test_a_tracked_file_comes_back_with_the_rest(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.write_text("broken")
    (project / "README.md").write_text("broken")
    (dotfile.parent / "other").write_text("changed")
    changes = {c["path"]: c["change"] for c in cli("status", "--json").json["changes"]}
    assert changes == {"README.md": "modified", str(dotfile): "modified"}
    report = cli("rollback", "--json").json["report"]
    assert dotfile.read_text() == "export A=1\n"
    assert (dotfile.parent / "other").read_text() == "changed"
    assert str(dotfile) in report["restored"]
    cli("redo")
    assert dotfile.read_text() == "broken" and (project / "README.md").read_text() == "broken"
    cli("rollback", "start")
    assert dotfile.read_text() == "export A=1\n"


def test_only_the_tracked_file_changed(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.unlink()
    cli("rollback")
    assert dotfile.read_text() == "export A=1\n"
    cli("redo")
    assert not dotfile.exists()


def test_a_tracked_folder_with_all_in_it(cli: Cli, project: Path, tmp_path: Path) -> None:
    sibling = tmp_path / "sibling"
    (sibling / "src").mkdir(parents=True)
    (sibling / "src" / "a").write_text("a")
    cli("track", "../sibling", cwd=project)
    cli("checkpoint", "start")
    (sibling / "src" / "a").unlink()
    (sibling / "new").write_text("x")
    cli("rollback", "start")
    assert (sibling / "src" / "a").read_text() == "a" and not (sibling / "new").exists()


def test_a_tracked_folder_that_is_deleted_comes_back(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The folder itself, with the repository in it, and the run that deleted it ends as the command did."""
    sibling = tmp_path / "sibling"
    (sibling / "src").mkdir(parents=True)
    (sibling / "src" / "a").write_text("a")
    (sibling / ".git").mkdir()
    (sibling / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    cli("track", str(sibling))
    cli("checkpoint", "start")
    before = fingerprint(sibling)
    ran = cli("run", "--label", "agent", "--", "rm", "-rf", str(sibling), check=False)
    assert ran.code == 0, ran.err
    deleted = {c["path"] for c in cli("status", "--since", "start", "--json").json["changes"]}
    assert {str(sibling), str(sibling / "src" / "a")} <= deleted
    cli("rollback", "start")
    assert fingerprint(sibling) == before
    cli("redo")
    assert not sibling.exists()
    cli("rollback", "start")
    (sibling / ".git" / "HEAD").write_text("ref: refs/heads/agent\n")
    cli("rollback", "start", "--everything")
    assert fingerprint(sibling) == before


def test_what_is_tracked_in_a_folder_that_is_gone_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The folder above a tracked path went while a run held it, and stays gone: every answer says so."""
    above = tmp_path / "above"
    (above / "sibling").mkdir(parents=True)
    (above / "sibling" / "a").write_text("a")
    tracked = str(above / "sibling")
    cli("track", tracked)
    cli("checkpoint", "start")
    ran = cli("run", "--json", "--label", "agent", "--", "sh", "-c", f"rm -rf {above}; echo x > made", check=False)
    assert ran.code == 0 and [gap["path"] for gap in ran.json["after"]["gaps"]] == [tracked]
    assert [gap["path"] for gap in cli("checkpoint", "--json").json["checkpoint"]["gaps"]] == [tracked]
    assert [gap["path"] for gap in cli("status", "--json").json["gaps"]] == [tracked]
    back = cli("rollback", "start", "--json", check=False)
    assert back.code == 6 and [gap["path"] for gap in back.json["report"]["not_undone"]] == [tracked]
    assert not (project / "made").exists()
    above.mkdir()
    cli("rollback", "start", "--everything")
    assert (above / "sibling" / "a").read_text() == "a"


def test_a_gap_in_a_tracked_folder_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    sibling = tmp_path / "sibling"
    sibling.mkdir()
    (sibling / "large").write_text("x" * 2000)
    cli("track", str(sibling))
    write_accepted(project, "max_file_size = 1000\n")
    gaps = cli("checkpoint", "--json").json["checkpoint"]["gaps"]
    assert str(sibling / "large") in [gap["path"] for gap in gaps]


def test_an_older_checkpoint_has_the_older_file(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    for number in range(4):
        dotfile.write_text(f"{number}\n")
        cli("checkpoint", f"n{number}")
    for number in (2, 0, 3, 1):
        cli("rollback", f"n{number}")
        assert dotfile.read_text() == f"{number}\n"


def test_what_a_person_did_to_it_stays(cli: Cli, project: Path, dotfile: Path) -> None:
    dotfile.write_text("".join(f"{n}\n" for n in range(30)))
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sed", "-i", "3s/.*/agent/", str(dotfile))
    dotfile.write_text(dotfile.read_text().replace("20\n", "mine\n"))
    cli("rollback", "start")
    lines = dotfile.read_text().splitlines()
    assert (lines[2], lines[20]) == ("2", "mine")


def test_what_an_agent_did_there_is_its_own_without_a_beginning(cli: Cli, project: Path, dotfile: Path) -> None:
    """The end of a call whose beginning was not seen says whose the changes are, in the tree and beside it."""
    cli("track", str(dotfile))
    cli("run", "--label", "first", "--", "true")  # from here on what is outside of every window is a person's
    cli("checkpoint", "start")
    dotfile.write_text("agent")
    (project / "made").write_text("agent")
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c1", "tool_response": {}}
    told = {"session_id": "s1", "cwd": str(project), "hook_event_name": "PostToolUse", **call}
    cli("hook", "claude-code", "PostToolUse", input=json.dumps(told))
    changes = {c["path"]: c["actor"] for c in cli("status", "--since", "start", "--json").json["changes"]}
    assert changes == {"made": "claude-code:s1", str(dotfile): "claude-code:s1"}
    cli("rollback", "start")
    assert dotfile.read_text() == "export A=1\n" and not (project / "made").exists()


def test_what_changes_there_while_a_process_is_left_is_nobodys(cli: Cli, project: Path, dotfile: Path) -> None:
    """It may be the process's work: it is not said to be a person's, and does not stay."""
    os.mkfifo(project / "go")
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", "(read x < go) > /dev/null 2>&1 &")
    try:
        dotfile.write_text("while it lives")
        changes = {c["path"]: c["actor"] for c in cli("status", "--since", "start", "--json").json["changes"]}
        assert changes == {str(dotfile): "unknown"}
        cli("rollback", "start")
        assert dotfile.read_text() == "export A=1\n"
    finally:
        (project / "go").write_text("x\n")


def test_undo_takes_a_runs_part_back_there_too(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("run", "--label", "one", "--", "sh", "-c", f"echo one >> {dotfile}; echo 1 > one")
    cli("run", "--label", "two", "--", "sh", "-c", "echo 2 > two")
    cli("undo", "step:one")
    assert dotfile.read_text() == "export A=1\n"
    assert not (project / "one").exists() and (project / "two").exists()
    cli("redo")
    assert dotfile.read_text() == "export A=1\none\n" and (project / "one").exists()


def test_undo_means_the_last_step_that_changed_something_there(cli: Cli, project: Path, dotfile: Path) -> None:
    """A step that changed nothing but a tracked path is a step; repeated undo goes on to the one before it."""
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    cli("run", "--label", "one", "--", "sh", "-c", "echo 1 > one")
    cli("run", "--label", "two", "--", "sh", "-c", f"echo two >> {dotfile}")
    cli("run", "--label", "three", "--", "true")
    cli("undo")
    assert dotfile.read_text() == "export A=1\n" and (project / "one").exists()
    cli("undo")
    assert not (project / "one").exists() and dotfile.read_text() == "export A=1\n"
    cli("redo")
    cli("redo")
    assert dotfile.read_text() == "export A=1\ntwo\n" and (project / "one").exists()


def test_undo_of_a_step_without_an_agent_goes_there_too(cli: Cli, project: Path, dotfile: Path) -> None:
    """Between two checkpoints, or since the last: in the tree and beside it, or beside it alone."""
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.write_text("one")
    (project / "made").write_text("one")
    cli("checkpoint", "both")
    dotfile.write_text("two")
    cli("checkpoint", "there")
    dotfile.write_text("three")
    for left in ("two", "one"):
        cli("undo")
        assert dotfile.read_text() == left and (project / "made").exists()
    cli("undo")
    assert dotfile.read_text() == "export A=1\n" and not (project / "made").exists()
    assert cli("undo", check=False).code == 2


def test_what_changed_there_is_counted(cli: Cli, project: Path, dotfile: Path) -> None:
    """A checkpoint, a run and the log never say that nothing changed when a tracked path did."""
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.write_text("mine")
    made = cli("checkpoint", "--json").json["checkpoint"]
    assert made["changed"] == 1
    assert "no change" not in cli("log", "-n", "1").out
    (dotfile.parent / "other").write_text("none of our business")
    assert "nothing changed" in cli("checkpoint").out
    ran = cli("run", "--label", "agent", "--", "sh", "-c", f"echo agent > {dotfile}; echo x > made")
    assert "2 paths changed" in ran.err
    ran = cli("run", "--json", "--label", "agent", "--", "sh", "-c", f"echo again > {dotfile}")
    assert ran.json["after"]["changed"] == 1


def test_a_conflict_there_touches_nothing_here(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo agent > {dotfile}; echo x > made")
    dotfile.write_text("mine")
    refused = cli("rollback", "start", "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["conflicts"] == [str(dotfile)]
    assert (project / "made").exists() and dotfile.read_text() == "mine"


def test_both_sides_of_a_conflict_there(cli: Cli, project: Path, dotfile: Path) -> None:
    """What the report says is beside a file is there, and what is not written is not said to be."""
    inner = dotfile.parent / "big" / "file"
    cli("track", str(dotfile), str(inner.parent))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo agent > {dotfile}; echo agent > {inner}")
    dotfile.write_text("mine")
    inner.write_text("mine")
    before = set(os.listdir(dotfile.parent))
    report = cli("rollback", "start", "--on-conflict", "both", "--json").json["report"]
    why = {kept["path"]: kept["reason"] for kept in report["kept"]}
    assert dotfile.read_text() == inner.read_text() == "mine"
    (beside,) = set(inner.parent.iterdir()) - {inner}
    assert beside.read_text() == "not tracked" and f"is beside it as big/{beside.name}" in why[str(inner)]
    assert set(os.listdir(dotfile.parent)) == before and "is not beside it" in why[str(dotfile)]
    cli("redo")
    assert not beside.exists() and dotfile.read_text() == inner.read_text() == "mine"


def test_before_it_was_tracked_nothing_is_known(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("checkpoint", "before")
    cli("track", str(dotfile))
    cli("checkpoint", "after")
    dotfile.write_text("changed")
    plan = cli("rollback", "before", "--json").json["plan"]
    assert dotfile.read_text() == "changed"
    assert [gap["path"] for gap in plan["not_undone"]] == [str(dotfile)]


def test_a_second_file_of_the_same_folder_is_protected_too(cli: Cli, project: Path, dotfile: Path) -> None:
    """Nothing in the folder changed when it was tracked, so nothing told us to look there again."""
    second = dotfile.parent / "other"
    cli("track", str(dotfile))
    cli("checkpoint", "first")
    cli("track", str(second))
    cli("checkpoint", "second")
    cli("run", "--label", "agent", "--", "sed", "-i", "s/not/NOT/", str(second))
    cli("rollback", "second")
    assert second.read_text() == "not tracked"
    cli("redo")
    assert second.read_text() == "NOT tracked"


@pytest.mark.parametrize("how", [(), ("--everything",)])
def test_a_file_that_was_tracked_later_stays(cli: Cli, project: Path, dotfile: Path, how: tuple[str, ...]) -> None:
    """At the first checkpoint nobody looked at it; that it is not in there does not mean that it was not there."""
    second = dotfile.parent / "other"
    cli("track", str(dotfile))
    cli("checkpoint", "first")
    cli("track", str(second))
    cli("checkpoint", "second")
    dotfile.write_text("broken")
    assert {c["path"] for c in cli("diff", "first", "second", "--json").json["changes"]} == set()
    assert {c["path"] for c in cli("status", "--since", "first", "--json").json["changes"]} == {str(dotfile)}
    back = cli("rollback", "first", *how, "--json")
    assert second.read_text() == "not tracked" and dotfile.read_text() == "export A=1\n"
    assert [gap["path"] for gap in back.json["report"]["not_undone"]] == [str(second)]
    again = cli("rollback", "first", *how, "--json").json["report"]
    assert again["operation"] == "" and [gap["path"] for gap in again["not_undone"]] == [str(second)]


def test_a_file_that_was_tracked_in_the_middle_of_a_step_stays(cli: Cli, project: Path, dotfile: Path) -> None:
    """The step did not make it: it was there and began to be looked at."""
    second = dotfile.parent / "other"
    cli("track", str(dotfile))
    us = f"{sys.executable} -m reprieve"
    inside = f"echo x > made; {us} track {second}; {us} checkpoint inside"
    cli("run", "--label", "agent", "--", "sh", "-c", inside)
    undone = cli("undo", "step:agent", "--json").json["report"]
    assert not (project / "made").exists() and second.read_text() == "not tracked"
    assert [gap["path"] for gap in undone["not_undone"]] == [str(second)]


def test_a_tracked_name_that_was_not_there_is_gone_again(cli: Cli, project: Path, dotfile: Path) -> None:
    """Tracked before it exists, together with another and in a checkpoint of its own."""
    first, second = dotfile.parent / "first", dotfile.parent / "second"
    cli("track", str(dotfile), str(first))
    cli("checkpoint", "start")
    cli("track", str(second))
    cli("checkpoint", "more")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo x > {first}; echo x > {second}")
    cli("rollback", "more")
    assert not first.exists() and not second.exists() and dotfile.exists()
    cli("redo")
    assert first.exists() and second.exists()


def test_what_is_no_longer_tracked_is_left_alone(cli: Cli, project: Path, dotfile: Path) -> None:
    """By undo and by redo as well, which took and gave it back once."""
    second = dotfile.parent / "other"
    cli("track", str(dotfile), str(second))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo 1 > {dotfile}; echo 1 > {second}; echo 1 > made")
    cli("rollback", "start")
    cli("track", "--remove", str(second))
    second.write_text("mine")
    redone = cli("redo", "--json", check=False)
    assert redone.code == 6 and [gap["path"] for gap in redone.json["report"]["not_undone"]] == [str(second)]
    assert dotfile.read_text() == "1\n" and (project / "made").exists() and second.read_text() == "mine"
    cli("undo", "step:agent")
    assert dotfile.read_text() == "export A=1\n" and not (project / "made").exists() and second.read_text() == "mine"


def test_an_entry_that_does_not_say_what_was_tracked_deletes_nothing(cli: Cli, project: Path, dotfile: Path) -> None:
    """Older versions did not write it down: what is in their trees comes back, the rest stays and is named."""
    second = dotfile.parent / "other"
    script = project.parent / "sitecustomize.py"
    script.write_text("import reprieve.files.capture as c\nc.with_names = lambda data, names: data\n")
    older = {"PYTHONPATH": f"{script.parent}{os.pathsep}{os.environ['PYTHONPATH']}"}
    cli("track", str(dotfile), env=older)
    cli("checkpoint", "old", env=older)
    cli("track", str(second))
    cli("checkpoint", "new")
    dotfile.write_text("broken")
    second.write_text("broken")
    back = cli("rollback", "old", "--json", check=False)
    assert back.code == 6 and [gap["path"] for gap in back.json["report"]["not_undone"]] == [str(second)]
    assert dotfile.read_text() == "export A=1\n" and second.read_text() == "broken"
    cli("rollback", "new")
    assert second.read_text() == "not tracked"


def test_a_link_is_tracked_with_what_it_leads_to(cli: Cli, project: Path, dotfile: Path) -> None:
    link = dotfile.parent / "link"
    link.symlink_to(".zshrc")
    assert cli("track", str(link), "--json").json["tracked"] == [str(dotfile), str(link)]


def test_it_lists_and_removes(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("track", str(dotfile))
    assert cli("track", "--json").json["tracked"] == [str(dotfile)]
    assert cli("track", "--remove", str(dotfile), "--json").json["tracked"] == []
    cli("checkpoint")
    dotfile.write_text("x")
    assert cli("status", "--json").json["changes"] == []
    assert cli("track", "--remove", str(dotfile), check=False).code == 2


def test_a_folder_with_a_tracked_file_is_no_workspace(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("checkpoint")
    assert cli("status", cwd=dotfile.parent, check=False).code == 3


def test_what_is_inside_or_holds_the_workspace_or_the_store_is_refused(cli: Cli, project: Path, tmp_path: Path) -> None:
    cli("init")
    assert cli("track", str(project / "README.md"), check=False).code == 2
    assert cli("track", str(project.parent), check=False).code in (2, 5)
    assert cli("track", os.environ["REPRIEVE_HOME"], check=False).code == 5


def test_gc_and_verify_know_it(cli: Cli, project: Path, dotfile: Path) -> None:
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.write_text("x")
    cli("gc")
    cli("verify")
    cli("rollback", "start")
    assert dotfile.read_text() == "export A=1\n"


def test_a_kill_between_the_two_is_finished_by_the_next_command(cli: Cli, project: Path, dotfile: Path) -> None:
    """The process dies when the workspace has moved and the tracked file has not."""
    cli("track", str(dotfile))
    cli("checkpoint", "start")
    dotfile.write_text("broken")
    (project / "README.md").write_text("broken")
    script = project.parent / "sitecustomize.py"
    script.write_text(
        "import os, signal\n"
        "import reprieve.rollback.execute as e\n"
        "real = e.finish\n"
        "def finish(capture, begun, **k):\n"
        "    if begun.intent.beside:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(capture, begun, **k)\n"
        "e.finish = finish\n"
    )
    path = f"{script.parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    killed = cli("rollback", "start", env={"PYTHONPATH": path}, check=False)
    assert killed.code == -9
    assert dotfile.read_text() == "broken" and (project / "README.md").read_text() != "broken"
    cli("status")
    assert dotfile.read_text() == "export A=1\n"
    cli("redo")
    assert dotfile.read_text() == "broken" and (project / "README.md").read_text() == "broken"


def test_a_path_is_tracked_once(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Two that move the same file would each find it changed by somebody."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "a").write_text("1")
    cli("track", str(inner))
    refused = cli("track", str(inner.parent), check=False)
    assert refused.code == 2 and f"track --remove {inner}" in refused.err
    cli("track", "--remove", str(inner))
    assert cli("track", str(inner.parent), str(inner), str(inner / "a"), "--json").json["tracked"] == [
        str(inner.parent)
    ]
    cli("checkpoint", "start")
    (inner / "a").write_text("2")
    cli("rollback", "start")
    assert (inner / "a").read_text() == "1"


def test_what_an_agent_excludes_there_and_a_person_accepts_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Nothing else moves in the tracked folder: what stays must be said all the same."""
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "f").write_text("good")
    cli("track", str(lib))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo 'exclude = [\"f\"]' > reprieve.toml; echo bad > {lib}/f")
    accept_settings(project)
    first = cli("rollback", "start", "--json", check=False)
    assert first.code == 6, first.out + first.err
    named = {gap["path"]: gap["reason"] for gap in first.json["report"]["not_undone"]}
    assert "run the same command again" in named[str(lib / "f")]


def test_an_exclude_never_names_what_is_tracked(cli: Cli, project: Path, tmp_path: Path) -> None:
    """`lib/` means folders in the tree, and in the tracked one; whoever tracks a folder wants it protected."""
    lib = tmp_path / "lib"
    (lib / "lib").mkdir(parents=True)
    (lib / "f").write_text("good")
    (lib / "lib" / "out").write_text("made")
    write_accepted(project, 'exclude = ["lib/"]\n')
    cli("track", str(lib))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo bad > {lib}/f; echo bad > {lib}/lib/out")
    cli("rollback", "start", check=False)
    assert (lib / "f").read_text() == "good"
    assert (lib / "lib" / "out").read_text() == "bad\n"


def test_what_is_in_a_folder_that_is_no_workspace_is_not_called_protected(cli: Cli, project: Path) -> None:
    result = cli("track", "README.md", check=False)
    assert result.code != 0 and "is not in a workspace" in result.err and "protected already" not in result.err
    assert cli("status", check=False).code != 0, "no workspace was made"


def test_there_is_nothing_to_remove_in_a_folder_that_is_no_workspace(cli: Cli, project: Path, dotfile: Path) -> None:
    assert cli("track", "--remove", str(dotfile), check=False).code == 3
    assert cli("status", check=False).code == 3, "no workspace was made"
    assert cli("track", str(dotfile)).code == 0
    assert cli("status").code == 0
