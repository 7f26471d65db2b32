"""Decide which settings of a reprieve.toml hold at once, and which protect less and wait until a person accepts them.

An agent can edit that file. So a value that protects at least as much as the user's own settings, or as what a person
accepted before, holds; of any other value only the part that was accepted holds. Pure: `accepting` keeps the answers.
"""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.config import Key

ACCEPT = "reprieve config accept"
_SHOWN = 5  # patterns in a sentence
_ENDLESS = float("inf")


class Weaker(Value):
    """A setting of reprieve.toml that would protect less and has no effect until a person accepts it."""

    key: str
    value: object  # all that the file says for this key
    text: str  # what would become weaker


class Settled(Value):
    """What a setting of reprieve.toml comes to."""

    value: object  # in force, with the user's own settings
    accepted: object  # the weaker part that is in force; None: nothing weaker is
    weaker: Weaker | None = None


def settle(key: Key, own: object, value: object, accepted: object) -> Settled:
    """Settle the file's value against the user's own and what a person accepted before (None: nothing)."""
    if isinstance(own, tuple) and isinstance(value, tuple):
        return _settle_patterns(key, own, value, accepted if isinstance(accepted, tuple) else ())
    if key.workspace == "accept" and _strength(key, value) > _strength(key, own):
        return Settled(own, None)  # a higher limit than the user's own would fill their disk
    if _strength(key, value) >= _strength(key, own):
        return Settled(value, None)
    floor = own
    if accepted is not None and _strength(key, accepted) < _strength(key, own):
        floor = accepted
    held = max(value, floor, key=lambda one: _strength(key, one))
    weaker = None if held == value else Weaker(key.name, value, f"{key.name} = {value}")
    return Settled(held, None if held == own else held, weaker)


def sentence(weaker: Sequence[Weaker], *, is_new: bool = False) -> str:
    """Say what a person may accept, and with which command."""
    what = "; ".join(one.text for one in weaker)
    return (
        f"reprieve.toml {'now ' if is_new else ''}asks for less protection: {what}. "
        f"This has no effect until you accept it: {ACCEPT}"
    )


def as_json(weaker: Sequence[Weaker]) -> list[dict[str, object]]:
    """The settings for `unaccepted_settings`."""
    return [
        {"key": one.key, "value": list(one.value) if isinstance(one.value, tuple) else one.value, "text": one.text}
        for one in weaker
    ]


def _strength(key: Key, value: object) -> float:
    """Rank the values of one key: a higher one protects more."""
    if key.workspace == "last":
        return key.choices.index(str(value))
    assert isinstance(value, int)
    if key.workspace == "lower":  # a budget, where 0 is no limit
        return -value if value else -_ENDLESS
    if key.workspace == "accept":  # a size limit, where 0 is no limit
        return value or _ENDLESS
    return value


def _settle_patterns(key: Key, own: Sequence[str], wanted: Sequence[str], accepted: Sequence[str]) -> Settled:
    has_negation = any(_is_negated(pattern) for pattern in (*own, *wanted))
    asked = [pattern for pattern in wanted if has_negation or pattern not in own]  # without what the user excludes too
    if _is_tighter(asked, accepted):
        return Settled((*own, *asked), tuple(asked) or None)
    # What was accepted and is still asked for. Leaving out a pattern, or adding a negation, never excludes more.
    held = [pattern for pattern in accepted if _is_negated(pattern) or pattern in asked]
    held += [pattern for pattern in asked if _is_negated(pattern)]
    return Settled((*own, *held), tuple(held) or None, Weaker(key.name, tuple(wanted), _difference(asked, accepted)))


def _is_tighter(asked: Sequence[str], accepted: Sequence[str]) -> bool:
    """Whether `asked` is `accepted` without some patterns and with more negations, so that it excludes no more.

    False also where that takes more than one look from left to right to find out.
    """
    at = 0
    for pattern in asked:
        skipped = at
        while skipped < len(accepted) and accepted[skipped] != pattern and not _is_negated(accepted[skipped]):
            skipped += 1
        if skipped < len(accepted) and accepted[skipped] == pattern:
            at = skipped + 1
        elif not _is_negated(pattern):
            return False
    return not any(_is_negated(pattern) for pattern in accepted[at:])


def _difference(asked: Sequence[str], accepted: Sequence[str]) -> str:
    more = [pattern for pattern in asked if pattern not in accepted and not _is_negated(pattern)]
    fewer = [pattern for pattern in accepted if pattern not in asked and _is_negated(pattern)]
    parts = [f"exclude {_some(more)}"] if more else []
    parts += [f"exclude without {_some(fewer)}"] if fewer else []
    return "; ".join(parts) or "exclude in another order"


def _some(patterns: Sequence[str]) -> str:
    shown = ", ".join(f'"{pattern}"' for pattern in patterns[:_SHOWN])
    return shown + (f" and {len(patterns) - _SHOWN:,} more" if len(patterns) > _SHOWN else "")


def _is_negated(pattern: str) -> bool:
    return pattern.startswith("!")
