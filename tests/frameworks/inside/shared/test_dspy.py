"""DSPy through `guard`: a real ReAct program with a scripted model, whose tools are guarded functions.

Its callbacks are no place for this: DSPy swallows what they raise, and runs the tool.
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.utils import DummyLM


def act(name: str, /, **arguments: str) -> dict[str, Any]:
    return {"next_thought": "I should act", "next_tool_name": name, "next_tool_args": arguments}


def run(desk: Any, *turns: dict[str, Any]) -> dspy.Prediction:
    guard = desk.ws.guard(agent="dspy", session="s1")
    program = dspy.ReAct("task -> answer", tools=[guard(one) for one in (desk.write, desk.delete, desk.stumble)])
    script = DummyLM([*turns, act("finish"), {"reasoning": "it is", "answer": "done"}])
    with dspy.context(lm=script):
        result = program(task="go")
    assert result.answer == "done"
    return result


def test_calls_and_the_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    run(desk, act("write", path="notes.txt", text="two\n"), act("delete", path="data.bin"))
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == "dspy:s1"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    result = run(desk, act("stumble", path="notes.txt"))
    assert "broke off" in str(result.trajectory["observation_0"])
    assert desk.labels()[-1] == "stumble: notes.txt (failed)"
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


def test_without_a_checkpoint_no_tool_is_called_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    desk.spoil()
    result = run(desk, act("delete", path="data.bin"))
    assert desk.ran == [] and desk.contents() == before and "store" in str(result.trajectory["observation_0"])
