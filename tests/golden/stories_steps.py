"""Stories about steps: one is taken back and others stay, by undo and redo over several levels, of several agents."""

from __future__ import annotations

import signal
import subprocess
import sys

from golden.stories import story
from golden.world import Agent, World


def three_runs(w: World) -> None:
    """Three runs that touch different places of one file, and a file each."""
    w.project()
    for number, label in enumerate(("one", "two", "three"), 1):
        w.run(label, w.line(number * 6, label) + f"; echo {label} > {label}.txt")


@story()
def rollback_to_before_each_of_three_runs(w: World) -> None:
    three_runs(w)
    w.ask("rollback", "step:three", "--yes")
    w.ask("redo")
    w.ask("rollback", "step:two", "--yes")
    w.ask("redo")
    w.ask("rollback", "step:one", "--yes")


@story()
def undo_of_a_middle_run_keeps_the_others(w: World) -> None:
    three_runs(w)
    w.ask("undo", "step:two", "--dry-run")
    w.ask("undo", "step:two", "--yes")
    w.ask("redo")


@story()
def undo_of_a_run_that_a_later_one_builds_on(w: World) -> None:
    w.project()
    w.run("first", w.line(5, "first"))
    w.run("second", w.line(5, "second"))
    w.ask("undo", "step:first", "--yes")


@story()
def undo_of_a_run_together_with_what_builds_on_it(w: World) -> None:
    w.project()
    w.run("first", w.line(5, "first") + "; mkdir made; echo x > made/x")
    w.run("second", w.line(5, "second") + "; echo y > made/y")
    w.ask("undo", "step:first", "--tail", "--yes")
    w.ask("redo")


@story()
def undo_three_times_and_redo_three_times(w: World) -> None:
    three_runs(w)
    for label in ("three", "two", "one"):
        w.ask("undo", f"step:{label}", "--yes")
    for _ in range(3):
        w.ask("redo")


@story()
def undo_without_a_name_takes_the_last_run(w: World) -> None:
    three_runs(w)
    w.ask("undo", "--yes")
    w.ask("undo", "--yes")


@story()
def a_rollback_of_a_rollback(w: World) -> None:
    three_runs(w)
    w.ask("rollback", "step:two", "--yes")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")
    w.ask("redo")


@story(known_defect="P1: a later point is a conflict after a rollback")
def rollback_to_a_later_point(w: World) -> None:
    w.project()
    for number in range(1, 5):
        w.run(f"s{number}", w.line(6, f"step{number}"))
    w.ask("rollback", "step:s2", "--yes")
    w.ask("rollback", "step:s4", "--yes")


@story()
def a_failed_run_is_taken_back(w: World) -> None:
    w.project()
    done = w.cli("run", "--label", "fails", "--on-failure", "rollback", "--", "sh", "-c", "echo x >> README.md; exit 7")
    w.note("exit code of the run", done.code)
    w.note("tree", w.look())


@story()
def a_run_whose_check_fails_is_taken_back(w: World) -> None:
    w.project()
    script = ["--check", "test -e src/util.py", "--on-failure", "rollback", "--", "rm", "src/util.py"]
    done = w.cli("run", "--label", "fails", *script)
    w.note("exit code of the run is 0", done.code == 0)
    w.note("tree", w.look())


@story()
def a_failed_run_is_kept_by_default(w: World) -> None:
    w.project()
    done = w.cli("run", "--label", "fails", "--", "sh", "-c", "echo x >> README.md; exit 7")
    w.note("exit code of the run", done.code)
    w.ask("status", "--since", "base")
    w.ask("undo", "step:fails", "--yes")


@story()
def two_turns_of_an_agent(w: World) -> None:
    w.project()
    claude = Agent(w)
    with claude.turn("first"):
        claude.edit("c1", "src/main.py", "print('first')\n")
        claude.shell("c2", "echo first > first.txt")
    with claude.turn("second"):
        claude.shell("c3", "rm first.txt; echo second > second.txt")
    w.ask("status", "--since", "base")
    w.ask("rollback", "turn:2", "--yes")
    w.ask("redo")
    w.ask("rollback", "turn:1", "--yes")
    w.ask("redo")


@story()
def undo_of_one_call_of_a_turn(w: World) -> None:
    w.project()
    claude = Agent(w)
    with claude.turn("work"):
        claude.edit("c1", "src/main.py", "print('one')\n")
        claude.edit("c2", "src/util.py", "ANSWER = 43\n")
        claude.shell("c3", w.line(3, "three"))
    w.ask("undo", "call:c2", "--dry-run")
    w.ask("undo", "call:c2", "--yes")
    w.ask("rollback", "call:c1", "--yes")


@story()
def undo_of_the_first_of_two_turns(w: World) -> None:
    w.project()
    claude = Agent(w)
    with claude.turn("first"):
        claude.shell("c1", w.line(2, "first"))
    with claude.turn("second"):
        claude.shell("c2", w.line(15, "second"))
    w.ask("undo", "turn:1", "--yes")
    w.ask("redo")


@story()
def rollback_to_before_a_session(w: World) -> None:
    w.project()
    claude = Agent(w, "session-one")
    with claude.turn("first"):
        claude.shell("c1", "echo x > one.txt")
    w.write("mine.txt", "mine\n")
    with claude.turn("second"):
        claude.shell("c2", "echo x > two.txt; echo y >> README.md")
    w.ask("rollback", "session:session-one", "--yes")


@story()
def two_agents_one_after_the_other(w: World) -> None:
    w.project()
    claude, codex = Agent(w, "claude-1"), Agent(w, "codex-1", "codex")
    with claude.turn("a"):
        claude.shell("c1", w.line(2, "claude") + "; echo c > claude.txt")
    with codex.turn("b"):
        codex.shell("x1", w.line(15, "codex") + "; echo x > codex.txt")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--actor", "claude-code", "--dry-run")
    w.ask("rollback", "base", "--actor", "claude-code", "--yes")
    w.ask("redo")
    w.ask("rollback", "base", "--actor", "codex:codex-1", "--yes")


@story()
def two_agents_in_the_same_lines(w: World) -> None:
    w.project()
    claude, gemini = Agent(w, "claude-1"), Agent(w, "gemini-1", "gemini")
    with claude.turn("a"):
        claude.shell("c1", w.line(2, "claude"))
    with gemini.turn("b"):
        gemini.shell("g1", w.line(2, "gemini"))
    w.ask("rollback", "base", "--actor", "claude-code", "--yes")
    w.ask("rollback", "base", "--yes")


@story()
def two_turns_that_overlap(w: World) -> None:
    """Each call ends before the other agent's next one begins."""
    w.project()
    claude, codex = Agent(w, "claude-1"), Agent(w, "codex-1", "codex")
    with claude.turn("a"), codex.turn("b"):
        claude.edit("c1", "src/main.py", "print('claude')\n")
        codex.edit("x1", "src/util.py", "ANSWER = 'codex'\n")
        claude.edit("c2", "claude.txt", "claude\n")
    w.ask("status", "--since", "base")
    w.ask("undo", "call:x1", "--yes")
    w.ask("rollback", "base", "--yes")


@story(known_defect="S5: calls that overlap count as shared even where each names its only file")
def two_calls_at_once(w: World) -> None:
    w.project()
    claude, codex = Agent(w, "claude-1"), Agent(w, "codex-1", "codex")
    mine = {"file_path": str(w.root / "src/main.py")}
    theirs = {"file_path": str(w.root / "src/util.py")}
    with claude.turn("a"), codex.turn("b"), claude.call("c1", "Write", **mine), codex.call("x1", "Write", **theirs):
        w.write("src/main.py", "print('claude')\n")
        w.write("src/util.py", "ANSWER = 'codex'\n")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--actor", "claude-code", "--yes")


@story()
def an_agent_inside_a_run(w: World) -> None:
    w.project()
    w.run("outer", "echo outer > outer.txt; reprieve run --label inner -- sh -c 'echo inner > inner.txt'")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--yes")


@story()
def changes_under_watch(w: World) -> None:
    w.project()
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "watch"], cwd=w.root, env=w.env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        w.write("README.md", "# Watched\n")
        process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    w.note("exit code of watch", process.returncode)
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")
