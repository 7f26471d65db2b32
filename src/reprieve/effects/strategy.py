"""The order in which ways back are tried for an effect, and the class that each one gives. Pure.

    transaction ─▶ before-image ─▶ compensator ─▶ hold ─▶ gate

The first that the thing at hand offers is taken. One that offers none stands before the gate: it is irreversible, and
policy decides whether it may run at all.
"""

from __future__ import annotations

from reprieve.model.effect import COMPENSABLE, HOLDABLE, IRREVERSIBLE, RESTORABLE, REVERSIBLE
from reprieve.model.value import Value

TRANSACTION, BEFORE_IMAGE, COMPENSATOR, HOLD, GATE = "transaction", "before-image", "compensator", "hold", "gate"
ORDER = (TRANSACTION, BEFORE_IMAGE, COMPENSATOR, HOLD, GATE)
CLASS_OF = {
    TRANSACTION: REVERSIBLE,  # nothing is seen outside until it is kept
    BEFORE_IMAGE: RESTORABLE,  # the state comes back; others may have seen it
    COMPENSATOR: COMPENSABLE,  # a new action that others see
    HOLD: HOLDABLE,
    GATE: IRREVERSIBLE,
}


class Strategy(Value):
    """The way back that is taken."""

    name: str
    cls: str


def choose(
    *,
    is_transactional: bool = False,
    has_before_image: bool = False,
    has_compensator: bool = False,
    is_holdable: bool = False,
) -> Strategy:
    """The first way in ORDER that there is; without any: the gate."""
    offered = {
        TRANSACTION: is_transactional,
        BEFORE_IMAGE: has_before_image,
        COMPENSATOR: has_compensator,
        HOLD: is_holdable,
        GATE: True,
    }
    name = next(name for name in ORDER if offered[name])
    return Strategy(name, CLASS_OF[name])
