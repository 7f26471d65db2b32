"""Open the workspace that a command is about."""

from __future__ import annotations

from reprieve.app.finding import open_workspace
from reprieve.app.weaker import as_json
from reprieve.cli.spec import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.cli.spec import Parsed
    from reprieve.cli.terminal import Terminal

ANYWHERE = Option("--anywhere", "Allow '/' and the home directory as a workspace")


def workspace(args: Parsed, out: Terminal, *, create: bool = False) -> Workspace:
    """The workspace around where the command works; `create` makes one there if there is none."""
    ws = open_workspace(
        args.start, create=create, reporter=out.reporter, allow_anywhere=args.flag(ANYWHERE.name.removeprefix("--"))
    )
    if ws.config.weaker:
        out.answer(unaccepted_settings=as_json(ws.config.weaker))
    return ws


def timeline(args: Parsed, out: Terminal) -> Workspace:
    """The same for commands that only read the timeline: they wait for nobody, and so leave an unfinished move."""
    ws = workspace(args, out)
    if any(one.timeline.intent() for one in (ws, *(annex.ws for annex in ws.annexes))):
        out.reporter.warn("a rollback is under way, or was interrupted; 'reprieve status' waits for it, or finishes it")
    return ws
