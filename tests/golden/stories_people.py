"""Stories about a person's edits beside and inside an agent's: they stay, are merged, or are a visible conflict."""

from __future__ import annotations

from golden.stories import story
from golden.world import Agent, World, without_folder_times


@story()
def a_persons_own_files_stay(w: World) -> None:
    w.project()
    w.run("agent", "echo x > agent.txt; echo x >> README.md")
    w.write("mine.txt", "mine\n")
    w.sh("rm src/util.py")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def everything_takes_a_persons_files_back_too(w: World) -> None:
    w.project()
    w.run("agent", "echo x > agent.txt; echo x >> README.md")
    w.write("mine.txt", "mine\n")
    w.sh(w.line(4, "mine"))
    w.ask("rollback", "base", "--everything", "--dry-run")
    w.ask("rollback", "base", "--everything", "--yes")
    w.ask("redo")


@story()
def a_person_before_and_after_the_agent(w: World) -> None:
    w.project()
    w.sh(w.line(1, "mine before"))
    w.run("agent", w.line(10, "agent"))
    w.sh(w.line(20, "mine after"))
    w.ask("rollback", "base", "--yes")


@story()
def other_lines_of_one_file_are_merged(w: World) -> None:
    w.project()
    w.run("agent", w.line(2, "agent"))
    w.sh(w.line(18, "mine"))
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


def same_lines(w: World) -> None:
    """The agent and the person changed the same line; the agent made a file besides."""
    w.project()
    w.run("agent", w.line(5, "agent") + "; echo x > agent.txt")
    w.sh(w.line(5, "mine"))


@story()
def the_same_line_is_a_conflict_and_nothing_changes(w: World) -> None:
    same_lines(w)
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def a_conflict_with_the_file_kept(w: World) -> None:
    same_lines(w)
    w.note("exit code", w.cli("rollback", "base", "--on-conflict", "keep", "--yes").code)
    w.note("tree", without_folder_times(w.look()))
    w.ask("redo")


@story()
def a_conflict_with_the_earlier_version_taken(w: World) -> None:
    same_lines(w)
    w.ask("rollback", "base", "--on-conflict", "theirs", "--yes")
    w.ask("redo")


@story()
def a_conflict_with_markers(w: World) -> None:
    """The words behind the markers may change, so the file is not shown."""
    same_lines(w)
    done = w.cli("rollback", "base", "--on-conflict", "merge", "--yes", "--json")
    text = (w.root / "notes.txt").read_text()
    w.note("exit code", done.code)
    w.note("conflicts", [conflict["path"] for conflict in done.json["report"]["conflicts"]])
    w.note("markers, and both versions", [mark in text for mark in ("<<<<<<<", "=======", ">>>>>>>", "mine", "line 5")])
    w.note("the agent's file is gone", not (w.root / "agent.txt").exists())


@story()
def a_conflict_with_both_versions_side_by_side(w: World) -> None:
    """The second file's name may change."""
    same_lines(w)
    done = w.cli("rollback", "base", "--on-conflict", "both", "--yes", "--json")
    known = {"README.md", "notes.txt", "src", "data.bin", "tool.sh"}
    second = [path for path in w.root.iterdir() if path.name not in known]
    w.note("exit code", done.code)
    w.note("mine", (w.root / "notes.txt").read_text().splitlines()[4])
    w.note("earlier", [path.read_text().splitlines()[4] for path in second])


@story(known_defect="the file is kept with exit code 0, where the contract has a conflict")
def a_person_deleted_what_the_agent_changed(w: World) -> None:
    w.project()
    w.run("agent", w.line(5, "agent"))
    w.sh("rm notes.txt")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def a_person_changed_what_the_agent_made(w: World) -> None:
    w.project()
    w.run("agent", "echo agent > made.txt; mkdir made; echo agent > made/one")
    w.write("made.txt", "agent\nmine\n")
    w.write("made/two", "mine\n")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def a_persons_file_in_an_agents_folder(w: World) -> None:
    """The folder stays with it, and what the agent put there goes."""
    w.project()
    w.run("agent", "mkdir -p made/inner; echo agent > made/one; echo agent > made/inner/two")
    w.write("made/mine", "mine\n")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def a_person_restored_what_the_agent_deleted(w: World) -> None:
    w.project()
    w.run("agent", "rm README.md")
    w.write("README.md", "# Mine now\n")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def a_persons_mode_on_an_agents_file(w: World) -> None:
    w.project()
    w.run("agent", w.line(5, "agent"))
    (w.root / "notes.txt").chmod(0o600)
    w.ask("rollback", "base", "--yes")


@story()
def undo_of_a_turn_with_a_person_in_between(w: World) -> None:
    w.project()
    claude = Agent(w)
    with claude.turn("first"):
        claude.shell("c1", w.line(2, "first"))
    w.sh(w.line(10, "mine"))
    with claude.turn("second"):
        claude.shell("c2", w.line(18, "second"))
    w.ask("status", "--since", "base")
    w.ask("undo", "turn:1", "--yes")
    w.ask("rollback", "base", "--yes")


@story()
def redo_after_a_persons_edit_elsewhere(w: World) -> None:
    w.project()
    w.run("agent", w.line(2, "agent"))
    w.ask("rollback", "base", "--yes")
    w.write("mine.txt", "mine\n")
    w.ask("redo")


@story()
def redo_after_a_persons_edit_of_the_same_file(w: World) -> None:
    w.project()
    w.run("agent", w.line(2, "agent"))
    w.ask("rollback", "base", "--yes")
    w.sh(w.line(2, "mine"))
    w.ask("redo")


@story()
def only_with_a_conflict_elsewhere(w: World) -> None:
    same_lines(w)
    w.ask("rollback", "base", "--only", "agent.txt", "--yes")
