"""What an MCP server says about its own tool, as a class: it may only make ours worse. Pure.

The hints are a stranger's word. One that claims harm is believed; one that claims harmlessness is believed only of
servers that a person put on a list. What a server leaves out has the protocol's default: writes, destroys, not
idempotent, reaches the world.
"""

from __future__ import annotations

from reprieve.policy.classes import IRREVERSIBLE, READ, RESTORABLE, raised

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


def claimed(annotations: Mapping[str, object] | None) -> str:
    """The class that the annotations describe. A value that is no boolean counts as left out."""
    given = dict(_DEFAULTS)
    for name, default in _DEFAULTS.items():
        value = (annotations or {}).get(name, default)
        given[name] = value if isinstance(value, bool) else default
    if given["readOnlyHint"] and not (annotations or {}).get("destructiveHint"):
        return READ
    if given["destructiveHint"] or given["openWorldHint"]:
        return IRREVERSIBLE
    return RESTORABLE  # it only adds, and only in a world of its own


def with_annotations(own: str | None, annotations: Mapping[str, object] | None, *, is_trusted: bool = False) -> str:
    """The class of a tool: ours, raised by what its server says. `own` None: nothing is known of it.

    A trusted server's word counts where we know nothing; it never lowers what we know.
    """
    if own is None:
        return claimed(annotations) if is_trusted and annotations else IRREVERSIBLE
    if not annotations:
        return raised(own, own)
    # what it leaves out says nothing against a class that we know; only an explicit claim of harm raises it
    explicit = {name: value for name, value in annotations.items() if name in _DEFAULTS}
    says_harm = explicit.get("destructiveHint") is True or (
        explicit.get("readOnlyHint") is False and explicit.get("destructiveHint") is not False
    )
    return raised(own, IRREVERSIBLE if says_harm else READ)
