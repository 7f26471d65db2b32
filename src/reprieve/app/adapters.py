"""Drivers for kinds of effects that other packages bring: note such an effect, and find who undoes it.

Found by entry point (`reprieve.effects`), and never in the workspace: what an agent puts there must not become code
that a rollback runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprieve.app import journals
from reprieve.app.effects import journal_of
from reprieve.errors import Misconfigured, Refused, Usage
from reprieve.model.actor import plain
from reprieve.model.effect import CLASSES, COMPENSABLE, EffectDraft
from reprieve.policy.redact import redact

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from reprieve.app.workspace import Workspace
    from reprieve.effects.driver import Driver
    from reprieve.model.effect import Effect

GROUP = "reprieve.effects"
_NEEDED = ("says", "check", "undo", "resolve", "may_repeat")


class WithAdapters(dict[str, "Driver"]):
    """Our own drivers, and those of others when one of their kinds is asked for."""

    def __init__(self, own: Mapping[str, Driver], root: bytes) -> None:
        super().__init__(own)
        self._root = os.path.realpath(os.fsdecode(root))

    def get(self, kind: str, default: Any = None) -> Any:
        """The driver of a kind. Raises Misconfigured if there is one and it can't be used."""
        try:
            return self[kind]
        except KeyError:
            return default

    def __missing__(self, kind: str) -> Driver:
        found = find(kind, self._root)
        if found is None:
            raise KeyError(kind)
        self[kind] = found
        return found


def record(
    ws: Workspace,
    kind: str,
    inverse: Mapping[str, object],
    *,
    description: str,
    resource: str = "",
    cls: str = COMPENSABLE,
    depends: Sequence[str] = (),
) -> Effect:
    """Note an effect whose reversal a driver of another package does; `inverse` is what that needs to know, as JSON."""
    own = journals.OWN
    if plain(kind) != kind or kind in own:
        raise Usage(f"'{kind}' can't name a kind of effect of your own", hints=[f"taken: {', '.join(sorted(own))}"])
    if cls not in CLASSES:
        raise Usage(f"there is no class '{cls}'", hints=[f"one of: {', '.join(CLASSES)}"])
    try:
        text = json.dumps(dict(inverse), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise Usage(f"the inverse is not JSON: {e}") from e
    if redact(text) != text:
        raise Refused(
            "the inverse seems to hold a secret, which the journal does not keep",
            hints=["name where the credential is, and have the driver read it there"],
        )
    if find(kind, os.path.realpath(os.fsdecode(ws.root))) is None:
        raise Refused(f"no installed package undoes '{kind}'", hints=[f"it offers an entry point of the group {GROUP}"])
    draft = EffectDraft(
        kind, cls, resource, redact(description), tuple(depends), {**json.loads(text), "kind": kind},
    )  # fmt: skip
    with journal_of(ws) as journal:
        return journal.record(draft, journals.place(ws))


def find(kind: str, root: str) -> Driver | None:
    """The driver that a package brings for a kind, None if none does. Raises Misconfigured."""
    for entry in _offers(kind, root):
        try:
            driver: Driver = entry.load()()
        except Exception as e:
            raise Misconfigured(f"what undoes '{kind}' can't be loaded ({entry.value}): {e}") from e
        missing = [name for name in _NEEDED if not callable(getattr(driver, name, None))]
        if missing:
            raise Misconfigured(f"what undoes '{kind}' ({entry.value}) has no {', '.join(missing)}")
        return driver
    return None


def _offers(kind: str, root: str) -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points  # costs more than most rollbacks of effects that need none

    for entry in entry_points(group=GROUP, name=kind):
        place = os.path.realpath(str(entry.dist.locate_file(""))) if entry.dist is not None else root
        if os.path.commonpath((place, root)) != root:
            yield entry
