"""Changes of a program's own objects: set back by the program, or named when it can't be asked any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import reprieve


class Agent:
    """State that an agent keeps in memory."""

    def __init__(self) -> None:
        self.todo = ["plan"]

    def put(self, value: object) -> None:
        assert isinstance(value, list)
        self.todo = value


def test_a_value_is_set_back_newest_first_and_once(project: Path, home: Path) -> None:
    agent, puts = Agent(), []

    def put(value: object) -> None:
        puts.append(value)
        agent.put(value)

    with reprieve.open(project) as ws:
        base = ws.checkpoint("base")
        for word in ("build", "ship"):
            before = list(agent.todo)
            agent.todo.append(word)
            ws.remember("agent.todo", before, agent.todo, set=put, get=lambda: agent.todo)
        report = ws.rollback(base, effects=True)
        assert [outcome.state for outcome in report.effects] == ["undone", "undone"]
        assert agent.todo == ["plan"] and puts == [["plan", "build"], ["plan"]]
        ws.rollback(base, effects=True)
        assert len(puts) == 2


def test_bad_case_6_a_value_that_was_changed_since_is_left_alone(project: Path, home: Path) -> None:
    agent = Agent()
    with reprieve.open(project) as ws:
        base = ws.checkpoint("base")
        agent.todo = ["agent's"]
        ws.remember("agent.todo", ["plan"], ["agent's"], set=agent.put, get=lambda: agent.todo)
        agent.todo = ["person's"]
        with pytest.raises(reprieve.Conflict, match="not as the agent left"):
            ws.rollback(base, effects=True)
        assert agent.todo == ["person's"]


def test_a_setter_that_fails_is_an_outcome_and_the_rest_goes_on(project: Path, home: Path) -> None:
    agent = Agent()

    def broken(value: object) -> None:
        raise RuntimeError("no")

    with reprieve.open(project) as ws:
        base = ws.checkpoint("base")
        ws.remember("agent.todo", ["plan"], ["x"], set=agent.put)
        agent.todo = ["x"]
        ws.remember("agent.other", 1, 2, set=broken)
        report = ws.rollback(base, effects=True)
        assert [outcome.state for outcome in report.effects] == ["failed", "undone"]
        assert agent.todo == ["plan"] and "RuntimeError: no" in report.effects[0].detail


def test_a_getter_that_fails_is_an_answer_and_the_rest_goes_on(project: Path, home: Path) -> None:
    """The value is named as not undone, in the preview and in the report; files and other values come back."""
    config = {"model": "big", "tmp": 2}
    with reprieve.open(project) as ws:
        (project / "f").write_text("old")
        base = ws.checkpoint("base")
        ws.remember("tmp", 1, 2, set=lambda v: config.update(tmp=v), get=lambda: config["tmp"])
        ws.remember("model", "small", "big", set=lambda v: config.update(model=v), get=lambda: config["model"])
        (project / "f").write_text("new")
        del config["tmp"]  # somebody removed it since
        assert [action.verb for action in ws.plan_rollback(base).effects] == ["undo", "leave"]
        report = ws.rollback(base, effects=True)
        assert [outcome.state for outcome in report.effects] == ["undone", "failed"] and report.is_partial
        assert "tmp could not be looked at (KeyError: 'tmp')" in report.effects[1].detail
        assert config == {"model": "small"} and (project / "f").read_text() == "old"


def test_a_getter_that_fails_only_after_another_was_undone_stops_nothing(project: Path, home: Path) -> None:
    config = {"tmp": 2}
    with reprieve.open(project) as ws:
        (project / "f").write_text("old")
        base = ws.checkpoint("base")
        ws.remember("config.tmp", 1, 2, set=lambda v: config.update(tmp=v), get=lambda: config["tmp"])
        ws.remember("config", {}, dict(config), set=lambda v: config.clear())
        (project / "f").write_text("new")
        report = ws.rollback(base, effects=True)
        assert [outcome.state for outcome in report.effects] == ["undone", "failed"] and report.is_partial
        assert (project / "f").read_text() == "old"


def test_without_a_yes_the_report_names_it_and_does_nothing(project: Path, home: Path) -> None:
    agent = Agent()
    with reprieve.open(project) as ws:
        base = ws.checkpoint("base")
        agent.todo = ["x"]
        ws.remember("agent.todo", ["plan"], ["x"], set=agent.put)
        assert [outcome.state for outcome in ws.rollback(base).effects] == ["pending"]
        assert agent.todo == ["x"]
        assert [action.description for action in ws.plan_rollback(base).effects] == ["change of agent.todo in memory"]


@pytest.mark.parametrize("is_alive", [True, False], ids=["it lives", "it is gone"])
def test_in_another_process_it_is_named_as_not_undone(project: Path, home: Path, is_alive: bool) -> None:
    script = (
        "import reprieve, sys\n"
        f"ws = reprieve.open({str(project)!r}); ws.checkpoint('base')\n"
        "ws.remember('x', 1, 2, set=print); print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        if not is_alive:
            child.stdin.close()
            child.wait()
        with reprieve.open(project) as ws:
            (outcome,) = ws.rollback("base", effects=True).effects
        child.stdin.close()
    assert outcome.state == "failed"
    assert ("alone can set it back" if is_alive else "which is gone") in outcome.detail
