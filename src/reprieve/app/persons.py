"""Decide who gives a command: a person, or an agent. The one place that answers this, for every front end.

A process below an open call or run is the agent's. So is one with an agent's marks in its environment, and one that has
no terminal of its own while a call or run is open in the workspace: that is how `setsid` and a double fork look. A
person at a terminal that is not below the agent stays a person. docs/design/0013-who-is-calling.md has the limits.
"""

from __future__ import annotations

import os

from reprieve.errors import Refused, ReprieveError
from reprieve.files import processes, promised
from reprieve.files.attribution import author_now, last_standing
from reprieve.files.processes import RUN
from reprieve.model.actor import PERSON, of_session
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.app.workspace import Workspace
    from reprieve.model.window import Standing, Window
    from reprieve.store.protocols import Store

# variables that coding agents set for what they start, and which agent that is
_MARKS = {
    "CLAUDECODE": "claude-code",
    "CLAUDE_CODE_ENTRYPOINT": "claude-code",
    "CODEX_SANDBOX": "codex",
    "GEMINI_CLI": "gemini",
    "CURSOR_AGENT": "cursor",
    "OPENCODE": "opencode",
    "AI_AGENT": "agent",
}


class Agent(Value):
    """An agent or run that gives a command."""

    actor: str  # as on the timeline
    reason: str  # why the command counts as its own, for people


def agent_above(ws: Workspace | None = None) -> Agent | None:
    """The agent or run that this command comes from, None if it seems to be a person's.

    Without `ws` the command is about the whole machine: then any workspace's open call counts.
    """
    ancestors = set(processes.above())
    at_work: list[Window] = []
    for standing, is_here in _standings(ws):
        below = tuple(w for w in standing.open if w.pid and w.pid in ancestors)
        if below:
            return Agent(standing.replace(open=below).author(), f"process {below[-1].pid} is above it")
        if any(pid in ancestors for pid, _ in standing.left):
            return Agent("agent:no-session", "a call left the process behind that is above it")
        if is_here:
            at_work += [w for w in standing.open if not processes.is_ours(w.pid)]
    if os.environ.get(RUN):
        return Agent("run:no-label", f"{RUN} is set")
    for mark, name in _MARKS.items():
        if os.environ.get(mark):
            return Agent(of_session(name, None), f"{mark} is set")
    if at_work and not processes.has_own_terminal():
        return Agent(at_work[-1].actor, "it has no terminal of its own, and that one is at work")
    return None


def caller(ws: Workspace) -> str:
    """Who gives this command, as an actor of the timeline."""
    agent = agent_above(ws)
    return agent.actor if agent is not None else PERSON


def need_person(ws: Workspace | None, deed: str) -> None:
    """Raises Refused if the command comes from an agent. `deed`: what agents can't do, such as "delete history"."""
    agent = agent_above(ws)
    if agent is not None:
        raise Refused(
            f"agents can't {deed}, and this command comes from {agent.actor}; nothing changed",
            details=[f"It counts as {agent.actor}'s: {agent.reason}"],
            hints=["ask the user to run it in their own terminal"],
            data={"actor": agent.actor, "reason": agent.reason},
        )


def _standings(ws: Workspace | None) -> Iterator[tuple[Standing, bool]]:
    """What is going on in each workspace, and whether the command is about that one; the command's own first."""
    if ws is not None:
        yield ws.capture.author()[2], True
        yield from _others(ws.store, ws.home, leave_out=ws.id, is_here=False)
        return
    from reprieve.app import places
    from reprieve.store.local import LocalStore

    try:
        store = LocalStore.open(places.home(), create=False)
    except (ReprieveError, OSError):
        return  # no store, or a damaged one: nothing is known of any call
    try:
        yield from _others(store, places.home(), leave_out="", is_here=True)
    finally:
        store.close()


def _others(store: Store, home: str, *, leave_out: str, is_here: bool) -> Iterator[tuple[Standing, bool]]:
    from reprieve.app.finding import is_annex

    for record in store.workspaces():
        if record.id == leave_out or is_annex(record):
            continue
        try:
            timeline = store.timeline(record.id)
            standing = author_now(last_standing(timeline, timeline.tip()))[1]
            window = promised.window_of(home, record.id)
        except ReprieveError:
            continue  # damage elsewhere says nothing about this command
        yield standing.replace(open=(*standing.open, window)) if window is not None else standing, is_here
