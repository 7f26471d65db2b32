"""The classes of effects in order of danger, and how two claims about one thing combine. Pure.

    read          no effect
    reversible    an exact inverse, and nobody outside sees it
    restorable    the state comes back; identities, times or an observer may differ
    compensable   takes a new, visible action, or money
    holdable      can wait until a person releases it: mail, messages, publishing
    irreversible  none of these
    opaque        nobody can tell by reading

What is not known counts as irreversible. A claim from outside (an annotation, a rule in the tree) may only raise the
class, so claims are combined by taking the worst.
"""

from __future__ import annotations

from reprieve.model.effect import (
    CLASSES,
    COMPENSABLE,
    HOLDABLE,
    IRREVERSIBLE,
    OPAQUE,
    READ,
    RESTORABLE,
    REVERSIBLE,
)

_RANK = {name: rank for rank, name in enumerate(CLASSES)}

# Where people need no question: nothing of theirs can get lost.
SAFE = (READ, REVERSIBLE, RESTORABLE)


def rank(name: str) -> int:
    """How dangerous a class is; a name that is not known ranks as irreversible."""
    return _RANK.get(name, _RANK[IRREVERSIBLE])


def worst(*names: str) -> str:
    """The most dangerous of the classes; of none: read, because nothing happens."""
    found = READ
    for name in names:
        if rank(name) > rank(found):
            found = name if name in _RANK else IRREVERSIBLE
    return found


def raised(own: str, claimed: str) -> str:
    """Our class, or the claimed one if that is worse. A claim never lowers."""
    return worst(own if own in _RANK else IRREVERSIBLE, claimed)


__all__ = [
    "CLASSES", "COMPENSABLE", "HOLDABLE", "IRREVERSIBLE", "OPAQUE", "READ", "RESTORABLE", "REVERSIBLE", "SAFE",
    "raised", "rank",
    "worst",
]  # fmt: skip
