"""Plans of agents (`Workspace.plan`): steps that are kept or taken back whole. Peers' cases by id."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import reprieve
from support import Cli
from support.tree import diff_fingerprints, fingerprint


@pytest.fixture
def ws(project: Path) -> Iterator[reprieve.Workspace]:
    with reprieve.open(project) as opened:
        yield opened


def three(ws: reprieve.Workspace, project: Path, memory: dict[str, int]) -> Any:
    """A plan of three steps in a row; each makes a file and an effect."""
    plan = ws.plan("migrate")
    for n, name in enumerate(("one", "two", "three")):
        with plan.step(name):
            (project / f"{name}.txt").write_text(f"{name}\n")
            memory[name] = n
            ws.remember(name, None, n, set=lambda _, name=name: memory.pop(name))
    return plan


# -- failing


def test_P02_P15_a_failing_step_goes_back_to_the_end_of_the_one_before(ws: reprieve.Workspace, project: Path) -> None:
    """Files and effects of the step are as before it, without anybody's doing; the error says what was taken back."""
    memory: dict[str, int] = {}
    plan = ws.plan("migrate")
    for name in ("one", "two"):
        with plan.step(name):
            (project / f"{name}.txt").write_text(name)
    before = fingerprint(project)
    with pytest.raises(ValueError, match="broken") as caught, plan.step("three") as step:
        (project / "three.txt").write_text("half")
        (project / "README.md").unlink()
        (project / "src" / "main.py").chmod(0o600)
        memory["three"] = 3
        ws.remember("three", None, 3, set=lambda _: memory.pop("three"))
        raise ValueError("broken")
    assert diff_fingerprints(before, fingerprint(project)) == [] and memory == {}
    assert plan.steps == {"one": "done", "two": "done", "three": "taken back"}
    assert step.report is not None and not step.report.is_partial
    assert {b"README.md", b"src/main.py"} <= set(step.report.report.restored)
    note = "\n".join(caught.value.__notes__)
    assert "three.txt: deleted" in note and "three in memory: undone" in note and "ValueError: broken" in note


def test_P02_P39_replan_takes_back_to_the_divergence_and_tells_the_planner(
    ws: reprieve.Workspace, project: Path
) -> None:
    """The step and what stands on it are gone before the new plan starts; the planner gets the report as text."""
    memory: dict[str, int] = {}
    plan = three(ws, project, memory)
    told = str(plan.replan("two", why="the schema was wrong"))
    assert (project / "one.txt").exists() and memory == {"one": 0}
    assert not (project / "two.txt").exists() and not (project / "three.txt").exists()
    assert "two, three" in told and "the schema was wrong" in told
    assert "two.txt: deleted" in told and "change of three in memory: undone" in told
    with plan.step("two") as again:  # the new plan
        (project / "two.txt").write_text("better\n")
    assert plan.steps == {"one": "done", "three": "taken back", "two": "done"} and again.report is None
    assert str(plan.replan("three")).splitlines()[-1] == "there was nothing to move"


def test_what_cannot_be_taken_back_is_named_and_the_rest_is(ws: reprieve.Workspace, project: Path) -> None:
    plan = ws.plan("mail")
    with pytest.raises(RuntimeError) as caught, plan.step("send") as step:
        (project / "draft").write_text("x")
        ws.record_http("POST", "https://mail.example/send", description="send the letter")
        raise RuntimeError
    assert not (project / "draft").exists()
    assert step.report is not None and step.report.is_partial
    assert "Not taken back:\n- send the letter: irreversible" in caught.value.__notes__[0]


def test_a_conflict_leaves_the_whole_step_and_says_so(ws: reprieve.Workspace, project: Path) -> None:
    """All or none: an effect that somebody changed since keeps the files of the step as well."""
    memory = {"key": 0}
    plan = ws.plan("p")
    with pytest.raises(RuntimeError) as caught, plan.step("a") as step:
        (project / "a.txt").write_text("a")
        memory["key"] = 1
        ws.remember("key", 0, 1, set=lambda value: memory.update(key=value), get=lambda: memory["key"])
        memory["key"] = 2  # somebody else
        raise RuntimeError
    assert (project / "a.txt").exists() and memory == {"key": 2} and step.report is None
    assert isinstance(step.failure, reprieve.Conflict) and "NOT taken back" in caught.value.__notes__[0]
    assert plan.steps == {"a": "failed"}
    with pytest.raises(reprieve.Refused, match="failed"), plan.step("a"):
        pytest.fail("it ran")
    memory["key"] = 1
    assert not plan.replan("a").is_partial and not (project / "a.txt").exists() and memory == {"key": 0}


def test_P15_keep_and_ask_are_policies_too(project: Path) -> None:
    class Person(reprieve.Reporter):
        answer = False

        def __init__(self) -> None:
            self.asked: list[str] = []

        def ask(self, question: str) -> bool:
            self.asked.append(question)
            return self.answer

    person = Person()
    with reprieve.open(project, reporter=person) as ws:
        plan = ws.plan("p", on_failure="ask")

        def fail(name: str, **how: Any) -> Any:
            with pytest.raises(RuntimeError), plan.step(name, **how) as step:
                (project / name).write_text(name)
                raise RuntimeError("no")
            return step

        assert fail("kept", on_failure="keep").report is None and (project / "kept").exists()
        assert "nobody said to keep it" in str(fail("silence").report) and not (project / "silence").exists()
        person.answer = True
        assert fail("wanted").report is None and (project / "wanted").exists()
        assert len(person.asked) == 2 and "Keep what it did?" in person.asked[0]
        with pytest.raises(reprieve.Usage):
            plan.step("x", on_failure="perhaps")


def test_the_setting_says_what_becomes_of_a_failing_step(project: Path, cli: Cli) -> None:
    cli("config", "set", "plan.on_failure", "keep")
    with reprieve.open(project) as ws, pytest.raises(RuntimeError), ws.plan("p") as plan, plan.step("a"):
        (project / "a").write_text("a")
        raise RuntimeError
    assert (project / "a").exists()


def test_a_step_can_be_called_failed_without_an_exception(ws: reprieve.Workspace, project: Path) -> None:
    with ws.plan("p") as plan, plan.step("test") as step:
        (project / "out").write_text("x")
        step.fail("2 tests are red")
    assert step.report is not None and "2 tests are red" in str(step.report) and not (project / "out").exists()


# -- steps on the timeline


def test_P21_P40_steps_are_addressable_by_their_ids(ws: reprieve.Workspace, project: Path, cli: Cli) -> None:
    """Three steps, three checkpoints by name; entries carry the plan's and the step's ids."""
    plan = ws.plan("migrate")
    for name in ("one", "two", "three"):
        with plan.step(name):
            (project / f"{name}.txt").write_text(name)
    for name in ("one", "two", "three"):
        shown = cli("show", f"step:migrate/{name}", "--json").json["entry"]
        assert shown["label"] == f"before migrate/{name}"
        assert f'"step":"{name}"' in ws._inner.resolve(f"step:migrate/{name}").data
    cli("undo", "step:migrate/two")
    assert not (project / "two.txt").exists() and (project / "three.txt").exists()
    assert ws.plan("migrate").steps == {"one": "done", "two": "taken back", "three": "done"}
    cli("redo")
    assert ws.plan("migrate").steps["two"] == "done" and (project / "two.txt").exists()


def test_P22_the_log_shows_sessions_steps_and_calls(ws: reprieve.Workspace, project: Path, cli: Cli) -> None:
    """session ⊃ turn ⊃ plan step ⊃ call, and each of them can be taken back by itself."""
    plan = ws.plan("p", session="s1", agent="home-made")
    with plan.step("a") as step:
        (project / "a0").write_text("")
        with step.guard(name="write", call="c1"):
            (project / "a1").write_text("")
        with ws.guard(name="write", call="c2", session="s1", agent="home-made"):
            (project / "a2").write_text("")
    entries = cli("log", "--json").json["entries"]
    assert {e["step"] for e in entries} >= {"p/a", "call:c1", "call:c2"}
    assert {e["actor"] for e in entries if e["step"]} == {"home-made:s1"}
    cli("undo", "call:c1")
    assert sorted(p.name for p in project.glob("a[0-9]")) == ["a0", "a2"]
    cli("undo", "step:p/a")
    assert not list(project.glob("a[0-9]"))
    cli("redo")
    cli("undo", "turn:1")
    assert not list(project.glob("a[0-9]"))
    cli("redo")
    cli("rollback", "session:s1")
    assert not list(project.glob("a[0-9]"))


def test_P38_every_step_can_be_gone_to_again(ws: reprieve.Workspace, project: Path) -> None:
    """The tree at the end of each step is the same bytes, whichever way one comes to it."""
    trees, ends = [], []
    plan = ws.plan("p")
    for n in range(4):
        with plan.step(f"s{n}") as step:
            (project / "README.md").write_text(f"{n}\n" * (n + 1))
            (project / f"f{n}").write_text(str(n))
        assert step.after is not None
        trees.append(fingerprint(project))
        ends.append(step.after.entry.id)
    for n in (1, 3, 0, 2):
        ws._inner.rollback(ends[n], everything=True)
        assert diff_fingerprints(trees[n], fingerprint(project), ignore=["dir_mtime_ns"]) == []


def test_a_step_of_which_only_a_part_was_taken_back_is_done(ws: reprieve.Workspace, project: Path) -> None:
    plan = ws.plan("p")
    with plan.step("a"):
        (project / "early").touch()
        middle = ws.checkpoint("middle")
        (project / "late").touch()
    assert ws.undo(middle).deleted == (b"early",)
    assert (project / "late").exists() and plan.steps == {"a": "done"}


def test_keep_retires_the_inverses_and_replan_leaves_it(ws: reprieve.Workspace, project: Path) -> None:
    memory: dict[str, int] = {}
    plan = three(ws, project, memory)
    plan.keep("two")
    assert {e.step: e.undo_state for e in ws.effects()} == {
        "migrate/one": "", "migrate/two": "kept", "migrate/three": "",
    }  # fmt: skip
    plan.replan("one")
    assert memory == {"two": 1} and (project / "two.txt").exists()
    assert plan.steps == {"one": "taken back", "two": "kept", "three": "taken back"}
    with pytest.raises(reprieve.Refused, match="kept"):
        plan.replan("two")


def test_an_effect_of_a_call_inside_goes_with_the_step(ws: reprieve.Workspace, project: Path) -> None:
    """Undoing an outer window undoes the effects of the inner ones, too."""
    memory: dict[str, int] = {}
    with pytest.raises(RuntimeError), ws.plan("p").step("a") as step:
        with ThreadPoolExecutor(1) as pool:  # a thread of its own does not know what it is inside of

            def work() -> None:
                with step.guard(name="tool", call="deep"):
                    memory["x"] = 1
                    ws.remember("x", None, 1, set=lambda _: memory.pop("x"))

            pool.submit(work).result()
        raise RuntimeError
    assert memory == {} and [e.undo_state for e in ws.effects()] == ["undone"]


def test_wrong_plans_are_told_at_once(ws: reprieve.Workspace) -> None:
    plan = ws.plan("p")
    with pytest.raises(reprieve.Usage, match="no step 'x'"), plan.step("a", after=("x",)):
        pass
    for call in (
        lambda: ws.plan("a b"),
        lambda: plan.step(""),
        lambda: plan.step("a", after="b"),
        lambda: plan.keep("a"),
    ):
        with pytest.raises(reprieve.Usage):
            call()
    with pytest.raises(RuntimeError), plan.step("a"):
        raise RuntimeError
    with pytest.raises(reprieve.Refused, match="taken back"), plan.step("b", after=("a",)):
        pass
    with plan.step("a"), pytest.raises(reprieve.Refused, match="running"), plan.step("a"):
        pass


# -- at once


def test_P40_one_branch_of_a_diamond_goes_back_and_the_other_stays(ws: reprieve.Workspace, project: Path) -> None:
    """Tasks at the same time; each says where it writes, so that each file is known to be one's."""
    memory: dict[str, int] = {}

    async def branch(plan: Any, name: str, both: asyncio.Barrier, *, fails: bool) -> None:
        async with plan.step(name, after=("top",), writes=(f"{name}.d", f"{name}.txt")):
            (project / f"{name}.d").mkdir()
            (project / f"{name}.d" / "f").write_text(name)
            (project / f"{name}.txt").write_text(name)
            memory[name] = 1
            ws.remember(name, None, 1, set=lambda _: memory.pop(name))
            await both.wait()
            if fails:
                raise ValueError(name)
            await asyncio.sleep(0.2)
            (project / f"{name}.txt").write_text(name + " more")

    async def main() -> Any:
        async with ws.plan("diamond") as plan:
            async with plan.step("top"):
                (project / "top.txt").write_text("top")
            both = asyncio.Barrier(2)
            left, right = branch(plan, "left", both, fails=True), branch(plan, "right", both, fails=False)
            failed, done = await asyncio.gather(left, right, return_exceptions=True)
            assert isinstance(failed, ValueError) and done is None, (failed, done)
            assert "left.txt: deleted" in failed.__notes__[0]
            assert plan.steps == {"top": "done", "left": "taken back", "right": "done"}
            async with plan.step("left", after=("top",)):
                (project / "left.txt").write_text("second try")
            async with plan.step("bottom", after=("left", "right")):
                (project / "bottom.txt").write_text("x")
            return plan

    plan = asyncio.run(main())
    assert memory == {"right": 1} and not (project / "left.d").exists()
    assert (project / "right.txt").read_text() == "right more" and (project / "right.d" / "f").exists()
    assert plan.steps == {}  # finished: the next of this name is a new one


def test_P40_branches_in_threads(ws: reprieve.Workspace, project: Path) -> None:
    plan = ws.plan("p")
    both = threading.Barrier(2)

    def branch(name: str) -> str:
        try:
            with plan.step(name, after=(), writes=(name,)):
                (project / name).write_text(name)
                both.wait(20)
                if name == "a":
                    raise ValueError
        except ValueError:
            return "failed"
        return "done"

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(branch, ("a", "b"))) == ["failed", "done"]
    assert not (project / "a").exists() and (project / "b").exists()
    told = plan.replan("b")
    assert told.steps == ("b",) and not (project / "b").exists()


def test_branches_that_do_not_say_where_they_write_are_not_guessed_apart(ws: reprieve.Workspace, project: Path) -> None:
    """Nothing is touched, and the error says which file may be another step's."""
    plan = ws.plan("p")
    with plan.step("other", after=()):
        pass
    with pytest.raises(ValueError, match="x") as caught, plan.step("b", after=()):
        with plan.step("a", after=()) as step:
            (project / "a").write_text("a")
            (project / "b").write_text("b")
        plan.keep("a")
        step.window  # noqa: B018 - a is inside of b here: no doubt
        raise ValueError("x")
    assert not (project / "b").exists(), caught.value.__notes__

    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with plan.step("slow", after=()):
            started.set()
            go_on.wait(20)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow)
        assert started.wait(20)
        with pytest.raises(ValueError) as doubt, plan.step("fast", after=()) as fast:
            (project / "f").write_text("whose?")
            raise ValueError
        go_on.set()
        running.result()
    assert (project / "f").read_text() == "whose?" and isinstance(fast.failure, reprieve.Conflict)
    assert "f  " in doubt.value.__notes__[0]


# -- crashes

SCRIPT = """
import os, signal, sys, reprieve
with reprieve.open(sys.argv[1]) as ws:
    with ws.plan("migrate") as plan:
        if not plan.is_done("one"):
            with plan.step("one"):
                open(os.path.join(sys.argv[1], "one.txt"), "w").write("one")
        with plan.step("two"):
            open(os.path.join(sys.argv[1], "two.txt"), "w").write("half")
            if "die" in sys.argv:
                os.kill(os.getpid(), signal.SIGKILL)
            open(os.path.join(sys.argv[1], "two.txt"), "w").write("whole")
"""


def test_P06_a_step_whose_process_died_is_found_and_taken_back(project: Path, cli: Cli) -> None:
    """The next plan of that name, and `status`, know of it; what was done before stays."""
    (project.parent / "plan.py").write_text(SCRIPT)
    play = [sys.executable, str(project.parent / "plan.py"), str(project)]
    assert subprocess.run([*play, "die"], check=False).returncode == -signal.SIGKILL
    assert cli("status", "--json").json["plans"] == [
        {
            "plan": "migrate",
            "step": "two",
            "state": "broken off",
            "before": cli("log", "--json").json["entries"][0]["id"],
        }
    ]
    assert "reprieve undo step:migrate/two" in cli("status").out
    refused = subprocess.run(play, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "broken off; nothing was run" in refused.stderr
    with reprieve.open(project) as ws:
        plan = ws.plan("migrate")
        assert plan.broken == ("two",) and plan.is_done("one")
        plan.replan("two")
        assert not (project / "two.txt").exists() and (project / "one.txt").exists()
    assert cli("status", "--json").json["plans"] == []
    subprocess.run(play, check=True)
    assert (project / "two.txt").read_text() == "whole"
    with reprieve.open(project) as ws:
        assert ws.plan("migrate").steps == {}


# -- what others moved


def test_a_rollback_of_single_paths_does_not_take_a_step_back(ws: reprieve.Workspace, project: Path) -> None:
    start = ws.checkpoint("start")
    plan = ws.plan("p")
    with plan.step("a"):
        (project / "one").write_text("1")
        (project / "two").write_text("2")
    ws.rollback(start, only=["one"])
    assert plan.steps == {"a": "done"} and (project / "two").exists()
    assert b"two" in plan.replan("a").report.deleted and not (project / "two").exists()
    assert plan.steps == {"a": "taken back"}


def test_a_rollback_while_a_step_is_at_work_does_not_take_back_what_it_does_after(
    ws: reprieve.Workspace, project: Path
) -> None:
    start = ws.checkpoint("start")
    plan = ws.plan("p")
    with plan.step("a"):
        (project / "one").write_text("1")
        ws.rollback(start)
        assert plan.steps == {"a": "running"}
        (project / "two").write_text("2")
    assert plan.steps == {"a": "done"}
    assert b"two" in plan.replan("a").report.deleted and not (project / "two").exists()


@pytest.mark.parametrize("by", ["conversation", "turn"])
def test_a_step_goes_with_the_turn_that_it_was_in(ws: reprieve.Workspace, project: Path, by: str) -> None:
    """Undo of the turn takes the step's files; a plan that goes on must not believe that they are there."""
    with reprieve.Conversation(ws, "chat", agent="me") as chat:
        plan = ws.plan("p", session="chat", agent="me")
        with chat.turn("go"), plan.step("a"), ws.guard(name="write", session="chat", agent="me"):
            (project / "a.txt").write_text("a")
        assert plan.is_done("a")
        if by == "conversation":
            chat.undo()
        else:
            ws.undo("turn:1")
        assert not (project / "a.txt").exists() and plan.steps == {"a": "taken back"}
        ws.redo()
        assert (project / "a.txt").exists() and plan.is_done("a")


def test_undo_of_a_turn_without_a_block_takes_its_steps_along(ws: reprieve.Workspace, project: Path) -> None:
    plan = ws.plan("p")
    with ws.guard(name="first"):
        (project / "first").write_text("1")
    with plan.step("a"):
        (project / "a.txt").write_text("a")
    with ws.guard(name="last"):
        (project / "last").write_text("1")
    ws.undo("turn:1")
    assert not (project / "a.txt").exists() and plan.steps == {"a": "taken back"}


def test_replan_takes_back_effects_that_still_stand(ws: reprieve.Workspace, project: Path) -> None:
    """The files were rolled back by hand, or an inverse failed: the effects are not said to be gone."""
    start = ws.checkpoint("start")
    plan = ws.plan("p")
    with plan.step("a"):
        (project / "a.txt").write_text("a")
        ws.record_command(["test", "-e", "ready"], description="needs ready", is_idempotent=True)
    ws.rollback(start)
    assert plan.steps == {"a": "taken back"} and len(ws.effects(pending=True)) == 1
    for _ in range(2):
        assert plan.replan("a").is_partial
    (project / "ready").touch()
    assert not plan.replan("a").is_partial and ws.effects(pending=True) == []


def test_what_a_person_did_after_a_crash_is_said_to_be_taken_back_too(project: Path) -> None:
    died = subprocess.run([sys.executable, "-c", _BROKEN_OFF, str(project)], check=False)
    assert died.returncode == 9
    (project / "mine").write_text("a person's")
    with reprieve.open(project) as ws:
        told = ws.plan("p").replan("a")
        assert told.broken == ("a",) and "what a person changed from then" in str(told)
        ws.redo()
    assert (project / "mine").read_text() == "a person's"


_BROKEN_OFF = """
import os, sys, reprieve
ws = reprieve.open(sys.argv[1])
with ws.plan("p").step("a"):
    open(os.path.join(sys.argv[1], "a.txt"), "w").write("a")
    os._exit(9)
"""
