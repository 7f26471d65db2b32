"""What undoes one kind of effect must be able to do. Drivers know nothing of journals, plans or people."""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from reprieve.model.effect import Effect

# what a look at the world says before an undo
READY, ALREADY, CHANGED, UNCLEAR = "ready", "already", "changed", "unclear"


class Check(Value):
    """Whether the world is still as the effect left it."""

    state: str = READY  # ready; already: it is as it was before; changed: by somebody since; unclear: can't be told
    detail: str = ""


class Outcome(Value):
    """How an undo ended."""

    undo_state: str  # undone, conflict (nothing was changed), failed (nothing was changed), manual (nobody can tell)
    detail: str = ""
    renamed: tuple[str, str] | None = None  # (old, new): it came back under another name


if TYPE_CHECKING:

    class Driver(Protocol):
        """Undoes one kind of inverse."""

        def says(self, effect: Effect) -> str:
            """What the undo will do, complete, for people."""

        def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
            """Look, change nothing. `names`: what was renamed by undos before (old → new)."""

        def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
            """Do it, once. Raises nothing that the world can cause: what goes wrong is an outcome."""

        def resolve(self, effect: Effect) -> str:
            """Of an effect whose outcome is unknown: done or refused if that can be told, else unknown."""

        def may_repeat(self, effect: Effect) -> bool:
            """Whether an undo that may have happened can be sent once more without happening twice."""
