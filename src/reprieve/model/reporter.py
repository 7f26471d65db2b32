"""The one way in which progress, notices and questions leave the core.

The core tells a Reporter what happens; the CLI draws it, the web streams it, tests record it. This base class is
the silent one: it shows nothing and answers no to every question.
"""

from __future__ import annotations


class Reporter:
    """Told what happens. Every method returns quickly and never raises."""

    def progress(self, stage: str, *, done: int, total: int = 0, unit: str = "files", extra: int = 0) -> None:
        """`done` of `total` (0: not known yet) in `unit`; `extra` counts bytes where unit is files."""

    def finished(self, stage: str) -> None:
        """The stage that reported progress has ended."""

    def note(self, text: str) -> None:
        """Something a person may want to know now (waiting for a lock, an interrupted rollback was finished)."""

    def warn(self, text: str) -> None:
        """Something a person must know: a gap, a promise that does not hold fully."""

    def ask(self, question: str) -> bool:
        """A yes/no question for a person. Silent reporters say no."""
        return False
