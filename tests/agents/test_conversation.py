"""Where a conversation can be taken back it is done the agent's way; where not, that is said."""

from __future__ import annotations

import pytest

from reprieve.agents.conversation import SUPPORTED, need_support, opencode_request
from reprieve.errors import Misconfigured, Refused

from .recorded import NAMES


@pytest.mark.parametrize("agent", NAMES)
def test_every_agent_has_a_way_or_a_reason(agent: str) -> None:
    if agent in SUPPORTED:
        need_support(agent)
        return
    with pytest.raises(Refused) as caught:
        need_support(agent)
    assert any("--files" in hint for hint in caught.value.hints)


def test_opencode_is_forked_not_reverted() -> None:
    """Its revert also writes files, from a snapshot of its own."""
    request = opencode_request("ses_1", "msg_2")
    assert (request.method, request.path, request.body) == ("POST", "/session/ses_1/fork", {"messageID": "msg_2"})
    with pytest.raises(Misconfigured):
        opencode_request("../x", "msg_2")
