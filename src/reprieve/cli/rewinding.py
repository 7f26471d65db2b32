"""Take conversations back along with a rollback: plan, carry out, say how to go on."""

from __future__ import annotations

import shlex

from reprieve.agents.rewind import Rewind, prepare
from reprieve.app.conversations import cuts_since
from reprieve.app.refs import latest
from reprieve.cli import humane
from reprieve.errors import Misconfigured, Partial, ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.cli.terminal import Terminal


def plan(ws: Workspace, ref: str | None) -> list[Rewind]:
    """What would take every session since REF back to it. Raises Refused where one of the agents offers no way."""
    target = ws.resolve(ref) if ref else latest(ws.timeline)
    cuts = cuts_since(ws.timeline, target)
    if not cuts:
        raise Misconfigured(
            f"no agent's conversation was recorded since {target.id}; nothing was touched",
            hints=["roll back the files alone: --files", "have agents recorded: reprieve protect"],
        )
    return [prepare(cut) for cut in cuts]


def carry_out(rewinds: Sequence[Rewind], out: Terminal, *, dry_run: bool) -> None:
    """Make the new sessions and print the commands that go on from there. Raises Partial if one could not be made."""
    if dry_run:
        out.answer(conversations=[_json(rewind) for rewind in rewinds])
        for rewind in rewinds:
            out.line(f"Plan: {_what(rewind)}")
        return
    done: list[Rewind] = []
    for rewind in rewinds:
        try:
            done.append(rewind.do())
        except ReprieveError as error:
            raise Partial(
                f"the conversation of {rewind.agent}:{rewind.session} was not taken back: {error.message}",
                hints=[*error.hints, "try again: the same command with --conversation-only"],
            ) from error
    out.answer(conversations=[_json(rewind) for rewind in done])
    for rewind in done:
        out.line(f"{_what(rewind)}. Go on from there with: {humane.safe(shlex.join(rewind.command))}")
        if rewind.old_command:
            out.say(f"The old one is still there: {humane.safe(shlex.join(rewind.old_command))}")


def _what(rewind: Rewind) -> str:
    kept = f": {rewind.kept} messages stay, {rewind.dropped} go" if rewind.kept >= 0 else ""
    whole = "prompt of that turn" if rewind.is_whole_turn else "message of that call" if rewind.is_whole_message else ""
    to = f" to before the {whole}, further than the files" if whole else ""
    return f"the conversation {humane.safe(rewind.agent)}:{humane.safe(rewind.session)} goes back{to}{kept}"


def _json(rewind: Rewind) -> dict[str, object]:
    return {
        "agent": rewind.agent,
        "session": rewind.session,
        "command": list(rewind.command),
        "path": rewind.path,
        "kept": rewind.kept,
        "dropped": rewind.dropped,
        "is_whole_turn": rewind.is_whole_turn,
        "is_whole_message": rewind.is_whole_message,
    }
