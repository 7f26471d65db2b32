"""`reprieve approve`: a person's yes to one exact action."""

from __future__ import annotations

from reprieve.cli.answering import answer
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "approve",
    "Say yes to what waits, at a terminal",
    (
        ("reprieve approvals", "see what waits"),
        ("reprieve approve k7m2", "look at it once more and say yes"),
    ),
    details=(
        "Needs a terminal, and refuses inside of an agent's or a run's processes: an agent cannot approve itself. The "
        "approval holds for exactly the action shown, once, for an hour."
    ),
    arguments=(Argument("ID", "From `approvals`; a unique beginning is enough", is_required=True),),
    exit_codes=((5, "no terminal, or not confirmed"),),
)


def run(args: Parsed, out: Terminal) -> int:
    return answer(args, out, is_approved=True)
