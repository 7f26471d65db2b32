"""Decide what happens to an action of a known class: run it, ask a person, hold it, or refuse it. Pure.

| class                             | assist                  | autopilot                                       |
|-----------------------------------|-------------------------|-------------------------------------------------|
| read, reversible, restorable      | run                     | run                                             |
| compensable                       | ask                     | run within the budget, else hold, else refuse   |
| holdable                          | hold, else ask          | hold, else refuse                               |
| irreversible, opaque              | ask                     | hold, else refuse                               |

Nothing here takes the agent's word: there is no argument by which it could say that somebody agreed. An approval is
looked up by the hash of the exact action, by whoever asks a person.
"""

from __future__ import annotations

from reprieve.model.value import Value
from reprieve.policy.classes import (
    CLASSES,
    COMPENSABLE,
    HOLDABLE,
    IRREVERSIBLE,
    OPAQUE,
    SAFE,
)

RUN, ASK, HOLD, REFUSE = "run", "ask", "hold", "refuse"
ASSIST, AUTOPILOT = "assist", "autopilot"


class Circumstances(Value):
    """What the decision may depend on besides class and mode; each is the caller's own knowledge, never the agent's.

    `can_hold`: this action can be kept and released later. `has_person`: somebody can be asked.
    `is_within_budget`: a limit was set and this stays below it. `is_contained`: it runs where files come back and
    nothing else can be reached, so that what nobody can read does no harm either.
    """

    can_hold: bool = False
    has_person: bool = True
    is_within_budget: bool = False
    is_contained: bool = False


class Decision(Value):
    """What happens, why, and what could be done instead."""

    verb: str
    reason: str = ""
    hints: tuple[str, ...] = ()


_BECAUSE = {
    COMPENSABLE: "it takes a new, visible action to make up for it",
    HOLDABLE: "once it is out it can't be taken back",
    IRREVERSIBLE: "it can't be taken back",
    OPAQUE: "nobody can tell what it does by reading it",
}
_HINTS = {
    COMPENSABLE: ("a person can approve it",),
    HOLDABLE: ("hold it for a person to release", "a person can approve it"),
    IRREVERSIBLE: ("try it with a dry run", "a person can approve it"),
    OPAQUE: ("write it so that it can be read: plain commands, no text from elsewhere", "a person can approve it"),
}


def decide(cls: str, *, mode: str, circumstances: Circumstances | None = None, why: str = "") -> Decision:
    """The decision for a class in a mode. A class or a mode that is not known counts as the strictest."""
    now = circumstances or Circumstances()
    known = cls if cls in CLASSES else IRREVERSIBLE
    if known in SAFE:
        return Decision(RUN, why)
    if known == OPAQUE and now.is_contained:
        return Decision(RUN, why or "it runs where nothing but files can be reached, and those come back")
    reason = f"{_BECAUSE[known]}: {why}" if why else _BECAUSE[known]
    hints = _HINTS[known]
    if mode == ASSIST:
        if known == HOLDABLE and now.can_hold:
            return Decision(HOLD, reason, hints)
        if now.has_person:
            return Decision(ASK, reason, hints)
        return Decision(REFUSE, f"{reason}; and there is nobody to ask", hints)
    if known == COMPENSABLE and now.is_within_budget:
        return Decision(RUN, why)
    if now.can_hold:
        return Decision(HOLD, reason, hints)
    return Decision(REFUSE, f"{reason}; autopilot does not do that", hints)
