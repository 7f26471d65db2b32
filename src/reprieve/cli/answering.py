"""A person's answer to what waits. A yes is taken at a terminal only, and not from inside of an agent's processes."""

from __future__ import annotations

import os

from reprieve.app import effects
from reprieve.app.journals import has_journal
from reprieve.cli import humane, opening
from reprieve.cli.commands.approvals import as_json
from reprieve.errors import BadRef, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.cli.spec import Parsed
    from reprieve.cli.terminal import Terminal


def answer(args: Parsed, out: Terminal, *, is_approved: bool) -> int:
    """Show the action whole, ask, write the answer down."""
    with opening.workspace(args, out) as ws:
        if not has_journal(ws):
            raise BadRef("nothing waits for an answer here", hints=["see what waits: reprieve approvals"])
        with effects.journal_of(ws) as journal:
            approvals = effects.approvals_of(journal, ws)
            waiting = approvals.get(args.text("ID"))
            if is_approved:
                _must_be_a_person(ws, out)
                out.line(f"[{waiting.cls}]  {humane.safe(waiting.action)}")
                if not out.confirm("Approve exactly this, once?"):
                    raise Refused("not approved")
            decided = approvals.decide(waiting.id, is_approved=is_approved)
    out.answer(approval=as_json(decided))
    out.say(f"{decided.state.capitalize()}: {decided.id}")
    return 0


def _must_be_a_person(ws: Workspace, out: Terminal) -> None:
    if not out.is_interactive:
        raise Refused("an approval needs a person at a terminal", hints=["run it in a terminal of your own"])
    from reprieve.app.persons import agent_above

    agent = agent_above(ws)
    if agent is not None:
        raise Refused(
            f"this terminal belongs to {agent.actor}: an agent cannot approve itself (pid {os.getpid()})",
            details=[f"It counts as {agent.actor}'s: {agent.reason}"],
            hints=["ask the user to run it in their own terminal"],
        )
