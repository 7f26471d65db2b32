"""What it takes to undo a kind of effect of your own. The public name of it.

A package offers its driver under the entry point group `reprieve.effects`, named by the kind, as a callable without
arguments; `Workspace.record` notes an effect of that kind, and a rollback finds the driver by itself.

    [project.entry-points."reprieve.effects"]
    calendar = "my_package.undo:CalendarDriver"
"""

from __future__ import annotations

from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.model.effect import CONFLICT, DONE, FAILED, MANUAL, REFUSED, UNDONE, UNKNOWN, Effect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.effects.driver import Driver as Driver

__all__ = [
    "ALREADY",
    "CHANGED",
    "CONFLICT",
    "DONE",
    "FAILED",
    "MANUAL",
    "READY",
    "REFUSED",
    "UNCLEAR",
    "UNDONE",
    "UNKNOWN",
    "Check",
    "Effect",
    "Outcome",
]
