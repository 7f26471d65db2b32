"""`reprieve deny`: a no to one exact action."""

from __future__ import annotations

from reprieve.cli.answering import answer
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "deny",
    "Say no to what waits",
    (
        ("reprieve approvals", "see what waits"),
        ("reprieve deny k7m2", "it will not be done"),
    ),
    details="Anybody may say no: it can only keep something from happening.",
    arguments=(Argument("ID", "From `approvals`; a unique beginning is enough", is_required=True),),
)


def run(args: Parsed, out: Terminal) -> int:
    return answer(args, out, is_approved=False)
