"""Conversations are cut where every call has its result, in whatever form they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.threads.pairs import calls_and_results, legal_cuts


def _use(id: str) -> dict[str, str]:
    return {"type": "tool_use", "id": id}


FORMS: dict[str, tuple[Any, Any, Any, Any]] = {  # a prompt, calls of a and b, and their results
    "responses": (
        {"role": "user", "content": "go"},
        [{"type": "function_call", "call_id": id, "name": "x", "arguments": "{}"} for id in "ab"],
        {"type": "function_call_output", "call_id": "a", "output": ""},
        {"type": "function_call_output", "call_id": "b", "output": ""},
    ),
    "chat": (
        {"role": "user", "content": "go"},
        [{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}],
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "tool", "tool_call_id": "b", "content": ""},
    ),
    "anthropic": (
        {"role": "user", "content": "go"},
        [{"role": "assistant", "content": [{"type": "text", "text": ""}, _use("a"), _use("b")]}],
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}]},
    ),
    "claude transcript": (
        {"type": "user", "message": {"role": "user", "content": "go"}},
        [{"type": "assistant", "message": {"role": "assistant", "content": [_use(id)]}} for id in "ab"],
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}},
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_no_cut_parts_a_call_from_its_result(form: str) -> None:
    prompt, calls, first, second = FORMS[form]
    messages = [prompt, *calls, first, second, prompt]
    last = len(messages)
    assert legal_cuts(messages) == [0, 1, last - 1, last]
    assert legal_cuts(messages[:-2])[-1] == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_never_got_its_result_does_not_spoil_what_follows(form: str) -> None:
    """It was cancelled, and the person went on."""
    prompt, calls, _, _ = FORMS[form]
    assert legal_cuts([prompt, *calls, prompt, prompt])[-2:] == [len(calls) + 2, len(calls) + 3]


def test_what_a_service_does_by_itself_is_no_call_to_wait_for() -> None:
    assert calls_and_results({"type": "web_search_call", "id": "ws_1", "status": "completed"}) == ((), ())
    assert legal_cuts([]) == [0]
