"""What happens to an action of each class in each mode, and what nobody's word can change about it."""

from __future__ import annotations

import pytest

from reprieve.policy.annotations import claimed, with_annotations
from reprieve.policy.classes import (
    CLASSES,
    COMPENSABLE,
    HOLDABLE,
    IRREVERSIBLE,
    OPAQUE,
    READ,
    RESTORABLE,
    REVERSIBLE,
    raised,
    rank,
    worst,
)
from reprieve.policy.decide import ASK, ASSIST, AUTOPILOT, HOLD, REFUSE, RUN, Circumstances, decide


@pytest.mark.parametrize("mode", [ASSIST, AUTOPILOT])
@pytest.mark.parametrize("cls", [READ, REVERSIBLE, RESTORABLE])
def test_p_14_what_can_be_taken_back_never_prompts(cls: str, mode: str) -> None:
    assert decide(cls, mode=mode).verb == RUN
    assert decide(cls, mode=mode, circumstances=Circumstances(has_person=False)).verb == RUN


@pytest.mark.parametrize("cls", [COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE, "something new", ""])
def test_p_18_p_19_autopilot_refuses_and_assist_asks(cls: str) -> None:
    refused = decide(cls, mode=AUTOPILOT, why="drops a table")
    assert refused.verb == REFUSE and "drops a table" in refused.reason and refused.hints
    assert decide(cls, mode=ASSIST).verb == ASK


@pytest.mark.parametrize("cls", [COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE])
def test_p_19_with_nobody_to_ask_it_is_refused(cls: str) -> None:
    assert decide(cls, mode=ASSIST, circumstances=Circumstances(has_person=False)).verb == REFUSE


@pytest.mark.parametrize("cls", [COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE])
def test_p_18_what_can_wait_waits(cls: str) -> None:
    assert decide(cls, mode=AUTOPILOT, circumstances=Circumstances(can_hold=True)).verb == HOLD


def test_a_message_is_held_in_assist_too() -> None:
    assert decide(HOLDABLE, mode=ASSIST, circumstances=Circumstances(can_hold=True)).verb == HOLD


def test_autopilot_compensates_within_a_budget_only() -> None:
    assert decide(COMPENSABLE, mode=AUTOPILOT, circumstances=Circumstances(is_within_budget=True)).verb == RUN
    assert decide(IRREVERSIBLE, mode=AUTOPILOT, circumstances=Circumstances(is_within_budget=True)).verb == REFUSE
    assert decide(COMPENSABLE, mode=ASSIST, circumstances=Circumstances(is_within_budget=True)).verb == ASK


def test_what_nobody_can_read_runs_where_it_can_reach_nothing() -> None:
    assert decide(OPAQUE, mode=AUTOPILOT, circumstances=Circumstances(is_contained=True)).verb == RUN
    assert decide(IRREVERSIBLE, mode=AUTOPILOT, circumstances=Circumstances(is_contained=True)).verb == REFUSE


def test_a_mode_that_is_not_known_is_the_strict_one() -> None:
    assert decide(IRREVERSIBLE, mode="yolo").verb == REFUSE


def test_p_17_unknown_counts_as_irreversible() -> None:
    assert rank("something new") == rank(IRREVERSIBLE)
    assert worst("something new") == IRREVERSIBLE
    assert worst() == READ
    assert worst(READ, OPAQUE, COMPENSABLE) == OPAQUE


@pytest.mark.parametrize("own", CLASSES)
@pytest.mark.parametrize("claim", CLASSES)
def test_a_claim_only_raises(own: str, claim: str) -> None:
    assert rank(raised(own, claim)) == max(rank(own), rank(claim))


# -- MCP annotations

HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
SAYINGS = [
    None, {}, HARMLESS, {"readOnlyHint": True}, {"readOnlyHint": False}, {"destructiveHint": True},
    {"destructiveHint": False},
    {"readOnlyHint": "yes"}, {"readOnlyHint": True, "destructiveHint": True}, {"title": "harmless"},
    {"openWorldHint": False},
]  # fmt: skip


@pytest.mark.parametrize("says", SAYINGS)
@pytest.mark.parametrize("own", CLASSES)
@pytest.mark.parametrize("is_trusted", [False, True])
def test_p_41_annotations_never_lower_a_class(own: str, says: dict[str, object] | None, is_trusted: bool) -> None:
    assert rank(with_annotations(own, says, is_trusted=is_trusted)) >= rank(own)


def test_annotations_raise() -> None:
    assert with_annotations(READ, {"destructiveHint": True}) == IRREVERSIBLE
    assert with_annotations(READ, {"readOnlyHint": False}) == IRREVERSIBLE
    assert with_annotations(RESTORABLE, {"readOnlyHint": False, "destructiveHint": False}) == RESTORABLE
    assert with_annotations(OPAQUE, {"destructiveHint": True}) == OPAQUE


def test_p_17_an_unknown_tool_is_irreversible_whatever_its_server_says() -> None:
    for says in SAYINGS:
        assert with_annotations(None, says) == IRREVERSIBLE
    assert with_annotations(None, HARMLESS, is_trusted=True) == READ
    assert with_annotations(None, {}, is_trusted=True) == IRREVERSIBLE


def test_what_is_left_out_has_the_protocols_default() -> None:
    assert claimed({}) == claimed(None) == IRREVERSIBLE
    assert claimed({"readOnlyHint": True}) == READ
    assert claimed({"readOnlyHint": "true"}) == IRREVERSIBLE
    assert claimed({"destructiveHint": False}) == IRREVERSIBLE  # it still reaches the world
    assert claimed({"destructiveHint": False, "openWorldHint": False}) == RESTORABLE
    assert claimed({"readOnlyHint": True, "destructiveHint": True}) == IRREVERSIBLE
