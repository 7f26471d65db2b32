"""`reprieve approvals`: what waits for a person."""

from __future__ import annotations

from reprieve.app import effects
from reprieve.app.journals import has_journal
from reprieve.app.render import time_text
from reprieve.cli import humane, opening
from reprieve.cli.spec import Command, Parsed
from reprieve.cli.terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.policy.approvals import Approval

SPEC = Command(
    "approvals",
    "Show what waits for a person's yes",
    (
        ("reprieve approvals", "what waits in this workspace"),
        ("reprieve approvals --json", "the same for a program"),
    ),
    details="Answer with `reprieve approve ID` or `reprieve deny ID` at a terminal of your own.",
)


def run(args: Parsed, out: Terminal) -> int:
    waiting: list[Approval] = []
    with opening.workspace(args, out) as ws:
        if has_journal(ws):
            with effects.journal_of(ws) as journal:
                waiting = effects.approvals_of(journal, ws).pending()
    for approval in waiting:
        out.line(f"{approval.id}  [{approval.cls}]  {humane.safe(approval.action)}")
    if not waiting:
        out.line("Nothing waits")
    out.answer(approvals=[as_json(approval) for approval in waiting])
    return 0


def as_json(approval: Approval) -> dict[str, object]:
    """An approval in the contract's words."""
    return {
        "id": approval.id,
        "action": approval.action,
        "class": approval.cls,
        "hash": approval.hash,
        "expires_at": time_text(approval.expires_at),
        "state": approval.state,
    }
