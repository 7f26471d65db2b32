"""After a rollback of files: name the agents' states of that moment, which stay where they are unless asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprieve.app.thread_views import rollback_command
from reprieve.app.threads import states_at
from reprieve.cli import humane

if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.cli.terminal import Terminal


def offer_threads(ws: Workspace, checkpoint: str, out: Terminal) -> None:
    """How to take the threads back to where they were at a checkpoint."""
    found = states_at(ws, checkpoint)
    if out.json and found:
        out.answer(threads=[{"thread": thread, "state": state} for thread, state in found])
    for thread, state in found:
        out.say(f"Agent's state of that moment: {humane.safe(rollback_command(thread, state))}")
