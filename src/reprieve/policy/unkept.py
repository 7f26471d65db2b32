"""Whether taking a command back needs a secret out of its own words. Pure.

The journal keeps the words without their secrets (`redact`). An inverse that is made of what is left would run with
`***` in their place, so such a command has none.
"""

from __future__ import annotations

import re

from reprieve.policy.redact import redact_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.policy.catalog import Catalog, CommandRule

WHY = "taking it back needs a secret of the command line, which the journal does not keep"
_HOLE = re.compile(r"\{([a-z_][\w.-]*)\*?\}")


def needs_secret(argv: Sequence[str], catalog: Catalog) -> bool:
    """Whether the inverse of a command, or a look at what it changes, has to be given one of its secrets."""
    shown = redact_words(argv)
    if shown == list(argv):
        return False
    real, kept = catalog.match_command(argv), catalog.match_command(shown)
    if real is None or not real.rule.inverse:
        return False
    if kept is None or (kept.rule, kept.prefix, kept.carried) != (real.rule, real.prefix, real.carried):
        return True
    pairs = [(dict(one), dict(other)) for one, other in zip(real.items, kept.items, strict=True)]
    return any(one.get(name) != other.get(name) for one, other in pairs for name in _used(real.rule))


def _used(rule: CommandRule) -> set[str]:
    """The values that its captures and its inverse are filled with."""
    words = [word for capture in rule.capture for word in capture.run]
    words += [word for step in rule.inverse for word in (*step.argv, step.stdin)]
    return {name for word in words for name in _HOLE.findall(word)} | {
        name for step in rule.inverse for name, _ in step.when
    }
