"""Taking back what agents did and nothing else.

B1 to B6 and B8 to B10 of the agents' complaints; WB-05, WB-06, WB-45, EC-04, EC-24, CT-14; P-10, P-27 to P-31; K06 to
K12 with an agent and a person at work. B7 is git's (test_agents_git.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.errors import Conflict
from support import Cli
from support.acts import assert_tree, command, wait_until
from support.desk import TEXT, Desk, Gate
from support.shims import build, held, moments
from support.tree import fingerprint

CLAUDE, CODEX = "claude-code:s1", "codex:s2"


@pytest.fixture
def desk(project: Path) -> Iterator[Desk]:
    (project / "text").write_text(TEXT)
    with Desk(project) as desk:
        yield desk


def paths(items: object) -> list[str]:
    return sorted(os.fsdecode(getattr(item, "path", item)) for item in items)  # type: ignore[attr-defined]


# --- B1: the plan says it all -------------------------------------------------------------------------------------


def test_B1_the_plan_lists_everything_with_who_did_it_and_nothing_else_changes(cli: Cli, desk: Desk) -> None:
    """Created, modified, deleted, mode; each with its actor; what stays with the reason. Then exactly that is done."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text; rm README.md; chmod 755 .env", CLAUDE)
    desk.agent("echo b > made", CODEX, "call:2")
    desk.put("text", 20, "mine")
    (desk.root / "notes").write_text("mine")
    before = fingerprint(desk.root)
    plan = cli("rollback", start, "--dry-run", "--json").json["plan"]
    assert_tree(desk.root, before)
    listed = {action["path"]: (action["verb"], action["actor"]) for action in plan["actions"]}
    times = listed.pop("", None) or listed.pop(".", None)
    assert times is None or times[0] == "set times"
    assert listed == {
        "text": ("merge", f"{CLAUDE},person"),
        "README.md": ("recreate", CLAUDE),
        ".env": ("chmod", CLAUDE),
        "made": ("delete", CODEX),
    }
    assert [(kept["path"], kept["actor"]) for kept in plan["kept"]] == [("notes", "person")]
    shown = cli("rollback", start, "--dry-run").out
    for word in ("merge", "recreate", "delete", "kept", "notes", f"by {CODEX}"):
        assert word in shown
    cli("rollback", start)
    after = fingerprint(desk.root)
    changed = {os.fsdecode(p) for p in before.keys() | after.keys() if before.get(p) != after.get(p)} - {""}
    assert changed == set(listed)


# --- B2 to B4: a person's, another session's ------------------------------------------------------------------------


def test_B2_P10_a_persons_edit_after_the_agents_is_never_overwritten(desk: Desk) -> None:
    """Other lines: merged. The same lines: a conflict that names the file, offers a merge, and touches nothing."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text; echo x > made")
    desk.put("text", 3, "mine")
    before = fingerprint(desk.root)
    assert "by you in the same lines" in desk.refused(start)["text"]
    assert_tree(desk.root, before)
    desk.rollback(start, on_conflict="merge")
    text = (desk.root / "text").read_text()
    assert "<<<<<<< you\nmine\n=======\nline 3\n>>>>>>> before claude-code:s1\n" in text
    desk.ws.redo()
    assert_tree(desk.root, before)


def test_B2_edits_of_a_person_before_and_after_a_move_by_the_agent_both_stay(desk: Desk) -> None:
    """The file goes back to its old name with everything that the person wrote under either."""
    start = desk.checkpoint()
    desk.put("text", 25, "mine, before")
    desk.agent("mv text moved")
    desk.put("moved", 10, "mine, after")
    desk.rollback(start)
    assert not (desk.root / "moved").exists()
    assert (desk.line("text", 25), desk.line("text", 10)) == ("mine, before", "mine, after")


def test_B2_a_file_that_went_through_several_names(desk: Desk) -> None:
    """Edited by the agent, moved by the person, moved by the agent, edited by the person."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    (desk.root / "text").rename(desk.root / "chosen")
    desk.agent("mv chosen elsewhere", step="call:2")
    desk.put("elsewhere", 20, "mine")
    desk.rollback(start)
    assert [name for name in ("text", "chosen", "elsewhere") if (desk.root / name).exists()] == ["chosen"]
    assert (desk.line("chosen", 3), desk.line("chosen", 20)) == ("line 3", "mine")


def test_B2_a_moved_file_whose_old_folder_the_person_deleted_stays_where_it_is(desk: Desk) -> None:
    """It has nowhere to go back to: with the person's edit it stays under its new name."""
    start = desk.checkpoint()
    desk.agent("mv src/util.py util.py")
    (desk.root / "util.py").write_text("ANSWER = 42\nMINE = 1\n")
    shutil.rmtree(desk.root / "src")
    desk.rollback(start)
    assert (desk.root / "util.py").read_text() == "ANSWER = 42\nMINE = 1\n"
    assert not (desk.root / "src").exists()


def test_B2_a_folder_that_the_agent_made_stays_for_what_the_person_moved_into_it(desk: Desk) -> None:
    """Without the agent's edit, which is older than the move."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text; mkdir made; echo x > made/x")
    (desk.root / "text").rename(desk.root / "made" / "text")
    desk.rollback(start)
    assert (desk.root / "made" / "text").read_text() == TEXT and not (desk.root / "made" / "x").exists()


def test_B2_a_person_moved_something_to_where_the_agent_deleted(desk: Desk) -> None:
    """Both would be at one name: a conflict, as when the person had made it anew."""
    start = desk.checkpoint()
    desk.agent("rm README.md; sed -i 3s/.*/agent/ text")
    (desk.root / "text").rename(desk.root / "README.md")
    assert "README.md" in desk.refused(start)
    desk.rollback(start, on_conflict="both")
    assert (desk.root / "README.md").read_text() == TEXT.replace("line 3\n", "agent\n")
    assert (desk.root / f"README.md.checkpoint-{start}").read_text().startswith("# A project")


def test_B2_deleted_under_its_new_name_it_stays_deleted(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("mv text moved")
    (desk.root / "moved").unlink()
    _, report = desk.rollback(start)
    assert not (desk.root / "text").exists() and "text" in paths(report.kept)


def test_B2_something_else_at_the_old_name_is_a_conflict_and_the_file_stays(desk: Desk) -> None:
    """With `keep` both are there: the person's new file, and the old one under the name that the agent gave it."""
    start = desk.checkpoint()
    desk.agent("mv text moved")
    (desk.root / "text").write_text("mine\n")
    assert set(desk.refused(start)) == {"text", "moved"}
    desk.rollback(start, on_conflict="keep")
    assert (desk.root / "text").read_text() == "mine\n" and (desk.root / "moved").read_text() == TEXT


def test_B2_a_replaced_file_whose_bytes_are_elsewhere_is_not_lost(desk: Desk) -> None:
    """Moved away and made anew in one call, then deleted by the person: the moved bytes do not go silently."""
    start = desk.checkpoint()
    desk.agent("mv text old; echo new > text")
    (desk.root / "text").unlink()
    assert desk.refused(start) == {"old": "holds what was at text"}


def test_B2_created_by_the_agent_and_moved_by_the_person_is_a_conflict(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("echo agent > made")
    (desk.root / "made").rename(desk.root / "taken over")
    assert "moved by you" in desk.refused(start)["taken over"]


def test_B2_what_the_agent_deleted_after_a_persons_conflicting_edit_is_kept_for_them(desk: Desk) -> None:
    """With `keep` the person's last version comes back: there is nothing else to keep."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    desk.put("text", 3, "mine")
    desk.agent("rm text", step="call:2")
    assert list(desk.refused(start)) == ["text"]
    desk.rollback(start, on_conflict="keep")
    assert desk.line("text", 3) == "mine"


def test_B3_WB06_a_persons_new_files_are_never_deleted_and_the_agents_are(desk: Desk) -> None:
    """In the root, in a folder that the agent made, and beside its files; each deletion is in the report."""
    start = desk.checkpoint()
    desk.agent("mkdir -p new/deep; echo x > new/deep/x; echo y > y")
    (desk.root / "notes.md").write_text("mine")
    (desk.root / "new" / "deep" / "mine").write_text("mine")
    _, report = desk.rollback(start)
    assert (desk.root / "notes.md").exists() and (desk.root / "new" / "deep" / "mine").exists()
    assert paths(report.deleted) == ["new/deep/x", "y"]
    assert {"notes.md", "new/deep/mine"} <= set(paths(report.kept))


def test_B4_WB45_CT14_another_sessions_work_survives(cli: Cli, desk: Desk) -> None:
    """Two sessions in one folder: each can be taken back alone, in other files and in other lines of the same."""
    start = desk.checkpoint()
    for n, (actor, line) in enumerate([(CLAUDE, 3), (CODEX, 14), (CLAUDE, 8), (CODEX, 25)]):
        desk.agent(f"sed -i '{line}s/.*/{actor}/' text; echo {n} > {n}.txt", actor, f"call:{n}")
    cli("rollback", start, "--actor", CODEX)
    assert [desk.line("text", n) for n in (3, 8, 14, 25)] == [CLAUDE, CLAUDE, "line 14", "line 25"]
    assert [n for n in range(4) if (desk.root / f"{n}.txt").exists()] == [0, 2]
    desk.ws.redo()
    cli("rollback", start, "--actor", "claude-code")
    assert [desk.line("text", n) for n in (3, 8, 14, 25)] == ["line 3", "line 8", CODEX, CODEX]
    assert [n for n in range(4) if (desk.root / f"{n}.txt").exists()] == [1, 3]


def test_K09_the_same_lines_of_two_agents_are_a_named_conflict(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/first/ text", CLAUDE)
    desk.agent("sed -i 3s/.*/second/ text; echo b > b", CODEX, "call:2")
    before = fingerprint(desk.root)
    assert CODEX in desk.refused(start, actor=CLAUDE)["text"]
    assert_tree(desk.root, before)
    desk.rollback(start, actor=CODEX)
    assert desk.line("text", 3) == "first" and not (desk.root / "b").exists()


# --- B5, B6: and back again, whatever happens -----------------------------------------------------------------------


def test_B5_P30_five_rollbacks_and_five_redos_give_the_bytes_before(desk: Desk) -> None:
    """Over restarts, with a person's work and merges in between; each rollback is on the timeline."""
    states, starts = [], []
    for n in range(5):
        starts.append(desk.checkpoint())
        desk.agent(f"sed -i '{5 * n + 2}s/.*/agent {n}/' text; echo {n} > a{n}", step=f"call:{n}")
        (desk.root / f"mine{n}").write_text("mine")
    for start in reversed(starts):
        states.append(fingerprint(desk.root))
        desk.rollback(start)
    assert (desk.root / "text").read_text() == TEXT and (desk.root / "mine4").exists()
    for wanted in reversed(states):
        desk.ws.close()
        desk.ws = Desk(desk.root).ws
        desk.ws.redo()
        assert_tree(desk.root, wanted)
    kinds = [entry.kind for entry in desk.ws.log()]
    assert kinds.count("rollback") == 5 and kinds.count("redo") == 5


def test_B6_a_selective_rollback_that_is_killed_is_finished_by_the_next_command(
    cli: Cli, desk: Desk, tmp_path: Path
) -> None:
    """Killed in the middle of a rollback that merges: afterwards all of it happened, or nothing, and redo works."""
    shim = build(tmp_path)
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text; rm README.md; echo x > made; chmod 777 tool.sh")
    desk.put("text", 20, "mine")
    before = fingerprint(desk.root)
    count, _ = moments(shim, "rollback", start, "--json", cwd=desk.root)
    after = fingerprint(desk.root)
    cli("redo")
    for moment in (1, count // 4, count // 2, count * 3 // 4):
        process = subprocess.Popen(
            command("rollback", start, "--json"),
            cwd=desk.root,
            env={**os.environ, "LD_PRELOAD": str(shim), "SHIM_STOP_AT": str(moment)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.waitpid(process.pid, os.WUNTRACED)
        process.kill()
        process.wait()
        cli("status")
        now = fingerprint(desk.root)
        assert now in (before, after), f"moment {moment} of {count}"
        assert not list(desk.root.glob(".reprieve-*"))
        if now != before:
            cli("redo")
        assert_tree(desk.root, before)


# --- B8: in parts ---------------------------------------------------------------------------------------------------


def test_B8_P29_one_call_out_of_the_middle(desk: Desk) -> None:
    start = desk.checkpoint()
    for n, line in enumerate((3, 14, 25)):
        desk.agent(f"sed -i '{line}s/.*/agent {n}/' text; echo {n} > {n}.txt", step=f"call:{n}")
    desk.put("text", 20, "mine")
    desk.undo("call:1")
    assert [desk.line("text", n) for n in (3, 14, 20, 25)] == ["agent 0", "line 14", "mine", "agent 2"]
    assert [n for n in range(3) if (desk.root / f"{n}.txt").exists()] == [0, 2]
    desk.ws.redo()
    assert desk.line("text", 14) == "agent 1" and desk.who(start)["1.txt"] == CLAUDE


def test_B8_one_file_and_one_hunk(cli: Cli, desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("sed -i -e 3s/.*/agent/ -e 20s/.*/agent/ text; echo x >> README.md")
    cli("revert", "text", "--to", start, "--hunk", "2")
    assert (desk.line("text", 3), desk.line("text", 20)) == ("agent", "line 20")
    cli("rollback", start, "--only", "text")
    assert desk.line("text", 3) == "line 3" and (desk.root / "README.md").read_text().endswith("x\n")


def test_P27_P28_undo_names_the_dependants_and_tail_takes_them_along(cli: Cli, desk: Desk) -> None:
    """Step 2 is asked for, step 4 wrote the same lines: the plan names 4; with --tail both go and 3 stays."""
    desk.checkpoint()
    for n, line in enumerate((3, 14, 25, 14), 1):
        desk.agent(f"sed -i '{line}s/.*/agent {n}/' text; echo {n} > {n}.txt", step=f"call:{n}")
    fourth = next(e["id"] for e in cli("log", "--json").json["entries"] if e["step"] == "call:4")
    before = fingerprint(desk.root)
    refused = cli("undo", "call:2", "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["dependants"] == [fourth]
    assert "call:4" in refused.json["error"]["reasons"]["text"]
    assert_tree(desk.root, before)
    report = cli("undo", "call:2", "--tail", "--json").json["report"]
    assert report["deleted"] == ["2.txt", "4.txt"]
    assert [desk.line("text", n) for n in (3, 14, 25)] == ["agent 1", "line 14", "agent 3"]


def test_P29_an_edit_that_a_later_step_moved_is_undone_where_it_is_now(desk: Desk) -> None:
    """Nothing depends on it: the file stays moved, without the edit. It is never said to be undone when it was not."""
    desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text", step="call:1")
    desk.agent("mv text moved", step="call:2")
    desk.undo("call:1")
    assert (desk.root / "moved").read_text() == TEXT and not (desk.root / "text").exists()


@pytest.mark.parametrize("later", ["mv moved again", "rm moved", "sed -i 3s/.*/later/ moved"])
def test_P29_what_came_after_a_move_depends_on_it(desk: Desk, later: str) -> None:
    desk.checkpoint()
    desk.agent("mv text moved", step="call:1")
    desk.agent(later, step="call:2")
    before = fingerprint(desk.root)
    with pytest.raises(Conflict) as refused:
        desk.undo("call:1")
    assert len(refused.value.data["dependants"]) == 1
    assert_tree(desk.root, before)
    desk.undo("call:1", tail=True)
    assert (desk.root / "text").read_text() == TEXT and not (desk.root / "moved").exists()
    assert not (desk.root / "again").exists()


# --- B9, B10: the wrong moment, the wrong place ----------------------------------------------------------------------


def test_B9_a_pruned_checkpoint_is_refused_with_the_reason(cli: Cli, desk: Desk) -> None:
    first = desk.checkpoint()
    for n in range(3):
        desk.agent(f"echo {n} > {n}.txt", step=f"call:{n}")
    gone = cli("prune", "--keep-last", "1", "--keep-days", "0", "--yes", "--json").json["pruned"]
    assert first in {entry["id"] for entry in gone}
    before = fingerprint(desk.root)
    answer = cli("rollback", first, "--json", check=False)
    assert answer.code != 0 and "pruned" in answer.out
    assert_tree(desk.root, before)


def test_B9_a_moved_tree_is_known_and_a_copy_is_another(cli: Cli, desk: Desk, tmp_path: Path) -> None:
    """Who did what goes with the folder; a copy elsewhere has no history and nothing in it is rolled back."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    desk.put("text", 20, "mine")
    desk.ws.close()
    desk.root.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy", symlinks=True)
    copied = fingerprint(tmp_path / "copy")
    assert cli("rollback", start, cwd=tmp_path / "copy", check=False).code != 0
    assert_tree(tmp_path / "copy", copied)
    cli("rollback", start, cwd=tmp_path / "moved")
    lines = (tmp_path / "moved" / "text").read_text().splitlines()
    assert (lines[2], lines[19]) == ("line 3", "mine")


@pytest.mark.parametrize("verb", [("undo",), ("revert", "text"), ("redo",)])
def test_B10_K10_nothing_is_moved_while_a_run_is_active(cli: Cli, desk: Desk, tmp_path: Path, verb: tuple[str]) -> None:
    """Refused with the process's id. Telling the agent's conversation belongs to the agents' own hooks."""
    gate = Gate(tmp_path)
    desk.agent("echo x > made")
    process = subprocess.Popen(
        command("run", "--label", "long", "--", "sh", "-c", f"echo on > on; read x < {gate.path}"),
        cwd=desk.root,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: (desk.root / "on").exists() and (desk.root / "on").read_text() == "on\n", what="its beginning"
        )
        during = fingerprint(desk.root)
        answer = cli(*verb, "--json", check=False)
        assert answer.code == 5 and str(process.pid) in answer.out
        assert_tree(desk.root, during)
    finally:
        gate.open()
        assert process.wait(timeout=60) == 0


def test_EC24_files_and_their_redo_go_together(desk: Desk) -> None:
    """The files' part: a rollback has a redo. The conversation's part belongs to the agents' hooks."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    before = fingerprint(desk.root)
    _, report = desk.rollback(start)
    assert report.redo == "reprieve redo"
    desk.ws.redo()
    assert_tree(desk.root, before)


# --- what others lost: a rollback or redo over a person's edits -----------------------------------------------------


def test_WB05_K08_redo_does_not_overwrite_what_a_person_wrote_since(desk: Desk) -> None:
    """After a rollback that merged: refused, with the file's name, and the person's text is where it was."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    desk.put("text", 20, "mine")
    desk.rollback(start)
    desk.put("text", 10, "mine, later")
    before = fingerprint(desk.root)
    with pytest.raises(Conflict) as refused:
        desk.ws.redo()
    assert refused.value.data["conflicts"] == ["text"]
    assert_tree(desk.root, before)


def test_EC04_everything_of_a_persons_that_goes_is_listed_first_and_kept(desk: Desk) -> None:
    """--everything says whose it is, and the safety checkpoint has it."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    desk.put("text", 3, "mine")
    (desk.root / "notes").write_text("mine")
    plan, _ = desk.ws.rollback(start, everything=True, dry_run=True)
    by = {os.fsdecode(action.path): action.actor for action in plan.actions}
    assert by["notes"] == "person" and "person" in by["text"]
    before = fingerprint(desk.root)
    _, report = desk.rollback(start, everything=True)
    assert (desk.root / "text").read_text() == TEXT and not (desk.root / "notes").exists()
    desk.rollback(report.safety_checkpoint, everything=True)
    assert_tree(desk.root, before)


def test_P31_the_report_says_what_was_undone(cli: Cli, desk: Desk) -> None:
    """Paths with their verbs, what was kept and why, what goes where; the same in JSON."""
    start = desk.checkpoint("start")
    desk.agent("sed -i 3s/.*/agent/ text; rm README.md; echo x > made; chmod 755 .env")
    desk.put("text", 20, "mine")
    (desk.root / "notes").write_text("mine")
    said = cli("rollback", start).out.splitlines()
    id = next(e["id"] for e in cli("log", "--json").json["entries"] if e["kind"] == "rollback")
    shown = "\n".join(line.rstrip() for line in said)
    for words in (
        f'Rolled back to {start} "start"',
        "recreate  README.md  (was deleted, by claude-code:s1)",
        "merge     text  (both changed it; only one side's part goes, by claude-code:s1 and you)",
        "delete    made  (was not there, by claude-code:s1)",
        "chmod     .env  (mode, owner or attributes changed, by claude-code:s1)",
        "= kept      notes: changed by you",
        "Take this back with: reprieve redo",
    ):
        assert words in shown, shown
    report = cli("show", id, "--json").json
    assert report["ok"]


# --- K06, K07, K12: a person in the very moment ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["text", "made/x", "made/mine"])
def test_K06_K07_a_save_in_the_moment_of_a_selective_rollback_is_kept(
    cli: Cli, desk: Desk, tmp_path: Path, name: str
) -> None:
    """A merge is on its way into a file, a folder is on its way out, and the person saves: nothing of it is lost."""
    shim = build(tmp_path)
    start = desk.checkpoint()

    def act() -> None:
        desk.agent("sed -i 3s/.*/agent/ text; mkdir -p made; echo x > made/x; rm -f README.md")
        desk.put("text", 20, "mine")

    act()
    before = fingerprint(desk.root)
    count, _ = moments(shim, "rollback", start, "--json", cwd=desk.root)
    cli("redo")
    assert_tree(desk.root, before)
    text = f"saved by a person, {name}\n"
    for moment in range(1, count - 3, max(1, count // 6)):  # a few calls more or less come from run to run
        placed = []

        def save(placed: list[int] = placed) -> None:
            if (desk.root / name).parent.exists():
                (desk.root / name).write_text(text)
                placed.append(1)

        answer = held(shim, moment, save, "rollback", start, "--json", cwd=desk.root)
        assert answer.code in (0, 1, 4, 6), answer
        is_there = any(
            p.is_file() and not p.is_symlink() and p.read_text(errors="replace") == text for p in desk.root.rglob("*")
        )
        assert is_there or not placed, f"moment {moment} of {count}: {answer.out}"
        desk.rollback(start, everything=True)
        act()


def test_K12_an_editors_atomic_save_is_the_persons_edit(desk: Desk) -> None:
    """Swap files and saves by rename make no false conflict; the agent's lines go, the person's stay."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ text")
    (desk.root / ".text.swp").write_bytes(b"b0VIM")
    new = (desk.root / "text").read_text().replace("line 20\n", "mine\n")
    (desk.root / "text~").write_text(new)
    (desk.root / "text~").rename(desk.root / "text")
    desk.rollback(start)
    assert (desk.line("text", 3), desk.line("text", 20)) == ("line 3", "mine")
    assert (desk.root / ".text.swp").exists()


def test_K10_a_killed_run_leaves_its_work_unknown_and_it_goes(cli: Cli, desk: Desk) -> None:
    start = desk.checkpoint()
    process = subprocess.Popen(
        command("run", "--", "sh", "-c", "echo x > made; exec sleep 60"),
        cwd=desk.root,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: (desk.root / "made").exists(), what="the command to begin")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert desk.who(start) == {"made": "unknown"}
    cli("rollback", start)
    assert not (desk.root / "made").exists()
