"""Where a conversation can be taken back it is done the agent's way; where not, that is said."""

from __future__ import annotations

import json

import pytest

from reprieve.agents.conversation import SUPPORTED, gemini_chat, gemini_rewind, need_support, opencode_request
from reprieve.errors import BadRef, Misconfigured, Refused

from .recorded import NAMES

CHAT = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in [
        {"sessionId": "s", "projectHash": "h", "startTime": "2026-11-15T10:00:00.000Z"},
        {"id": "m1", "type": "user", "content": "tidy up"},
        {"id": "m2", "type": "gemini", "content": "ok"},
        {"$set": {"lastUpdated": "2026-11-15T10:00:01.000Z"}},
        {"id": "m3", "type": "user", "content": [{"text": "taken back"}]},
        {"$rewindTo": "m3"},
        {"id": "m4", "type": "user", "content": "delete"},
        {"id": "m5", "type": "gemini", "content": "done"},
    ]
)


@pytest.mark.parametrize("agent", NAMES)
def test_every_agent_has_a_way_or_a_reason(agent: str) -> None:
    if agent in SUPPORTED:
        need_support(agent)
        return
    with pytest.raises(Refused) as caught:
        need_support(agent)
    assert any("--files" in hint for hint in caught.value.hints)


def test_gemini_is_rewound_by_a_line_that_names_a_message_of_the_chat() -> None:
    chat = gemini_chat(CHAT)
    assert gemini_rewind(chat, "m4") == b'{"$rewindTo": "m4"}\n'
    assert gemini_rewind(chat, "m2") == b'{"$rewindTo": "m2"}\n'


def test_what_was_said_and_taken_back_is_still_known() -> None:
    assert gemini_chat(CHAT).prompts == {"m1": "tidy up", "m3": "taken back", "m4": "delete"}


@pytest.mark.parametrize("message", ["m9", "m3", ""])
def test_an_unknown_message_is_refused_because_gemini_would_empty_the_chat(message: str) -> None:
    with pytest.raises(BadRef):
        gemini_rewind(gemini_chat(CHAT), message)


def test_a_chat_that_was_emptied_has_no_message() -> None:
    with pytest.raises(BadRef):
        gemini_rewind(gemini_chat(CHAT + b'{"$rewindTo": "m9"}\n'), "m1")


def test_opencode_is_forked_not_reverted() -> None:
    """Its revert also writes files, from a snapshot of its own."""
    request = opencode_request("ses_1", "msg_2")
    assert (request.method, request.path, request.body) == ("POST", "/session/ses_1/fork", {"messageID": "msg_2"})
    with pytest.raises(Misconfigured):
        opencode_request("../x", "msg_2")
