"""Which command lines only a person may give. `main` asks before it runs a command."""

from __future__ import annotations

from reprieve.app.persons import need_person
from reprieve.errors import Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.cli.spec import Parsed


def _unless_dry(deed: str) -> Callable[[Parsed], str]:
    return lambda args: "" if args.flag("dry-run") else deed


def _with_flag(flag: str, deed: str) -> Callable[[Parsed], str]:
    return lambda args: deed if args.flag(flag) else ""


def _thread(args: Parsed) -> str:
    is_erasing = args.text("ACTION") in ("prune", "delete") and not args.flag("dry-run")
    return "delete saved states" if is_erasing else ""


# what agents can't do with a command, "" where they may
DEEDS: dict[str, Callable[[Parsed], str]] = {
    "forget": _unless_dry("delete history"),
    "prune": _unless_dry("delete history"),
    "pin": _with_flag("remove", "remove a pin"),
    "name": lambda args: "" if args.text("TEXT") else "remove a name",  # `name` itself refuses to replace one
    "thread": _thread,
    "keep": lambda args: "keep an effect for good",
    "compensate": _with_flag("execute", "undo effects by themselves"),
    "track": _with_flag("remove", "end the protection of a path"),
    "unprotect": _unless_dry("remove the hooks that protect you"),
    "mcp": lambda args: _unless_dry("remove Reprieve from a client")(args) if args.text("VERB") == "uninstall" else "",
    "config": lambda args: "change settings" if args.text("ACTION") in ("set", "unset") else "",
}
_OF_THE_MACHINE = ("unprotect", "mcp", "config")


def refuse_agents(name: str, args: Parsed) -> None:
    """Raises Refused if the command line is one for persons, and an agent gives it."""
    deed = DEEDS[name](args)
    if not deed:
        return
    if name in _OF_THE_MACHINE:
        need_person(None, deed)
        return
    from reprieve.app.finding import open_workspace
    from reprieve.model.reporter import Reporter

    try:
        with open_workspace(args.start, reporter=Reporter()) as ws:
            need_person(ws, deed)
    except Misconfigured:
        need_person(None, deed)  # the command itself says what is wrong here
