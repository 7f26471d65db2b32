"""Name what is not protected."""

from __future__ import annotations

from reprieve.cli import humane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.cli.terminal import Terminal
    from reprieve.model.change import Gap

SHOWN = 20  # more than a screen of them hides the answer; --json has them all


def show_unprotected(out: Terminal) -> None:
    """A workspace without a checkpoint: nothing is known to compare with, which is not "nothing changed"."""
    out.line("No checkpoint yet: everything here is unprotected")
    out.say("Take one with: reprieve checkpoint")


def show_gaps(out: Terminal, gaps: Sequence[Gap]) -> None:
    """One line for each gap, up to a screenful."""
    if not gaps:
        return
    out.line(f"Not protected ({humane.count(len(gaps), 'path')}):", "yellow")
    for gap in gaps[:SHOWN]:
        out.line(f"  {humane.path(gap.path)}: {humane.safe(gap.reason)}")
    if len(gaps) > SHOWN:
        out.line(f"  … and {len(gaps) - SHOWN:,} more; all of them: reprieve status --json")
