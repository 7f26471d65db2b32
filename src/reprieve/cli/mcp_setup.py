"""`reprieve mcp install` and `uninstall`: our server in the configuration of MCP clients."""

from __future__ import annotations

import os

from reprieve.agents import foreign, mcp_clients
from reprieve.app import places
from reprieve.cli import foreign_files, humane
from reprieve.cli.this_machine import records, this_machine
from reprieve.errors import Usage
from reprieve.store.local import LocalStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.cli.spec import Parsed
    from reprieve.cli.terminal import Terminal


def run(args: Parsed, out: Terminal) -> int:
    if args.flag("http") or args.maybe("port") or args.flag("new-token"):
        raise Usage("--http, --port and --new-token are for serving, not for 'mcp install' and 'mcp uninstall'")
    return _install(args, out) if args.text("VERB") == "install" else _uninstall(args, out)


def _install(args: Parsed, out: Terminal) -> int:
    name = args.maybe("CLIENT")
    if name is None:
        known = ", ".join(mcp_clients.NAMES)
        raise Usage("'mcp install' needs a client", hints=[f"known are: {known}"])
    if args.flag("dry-run"):
        raise Usage("without --write nothing is written; --dry-run is for 'mcp uninstall'")
    machine, client = this_machine(args.start), mcp_clients.find(name)
    change = mcp_clients.install_plan(name, args.text("scope", "user"), machine)
    out.answer(changes=foreign_files.changes_json([change]), left_to_do=list(change.notes))
    if not args.flag("write"):
        text = mcp_clients.snippet(client, machine)
        out.answer(snippet=text)
        out.line(f"{client.title}: put this into {humane.safe(change.path)}", "bold")
        for line in text.splitlines():
            out.line(humane.safe(line))
        if change.problem is not None:
            out.line(f"By hand: {humane.safe(change.problem.message)}")
        out.say("Nothing was written; --write puts it in, and leaves everything else as it is")
        return 0
    foreign_files.show([change], out, nothing="already there", title_of=_title)
    foreign_files.carry_out(
        [change], out, ask=not args.flag("yes"), question="Write to {}?", first=lambda: _home(out), kept_in=_kept_in()
    )
    for note in change.notes:
        out.line(f"Left to you: {humane.safe(note)}")
    out.say(f"Take it out again: reprieve mcp uninstall {name}")
    return 0


def _uninstall(args: Parsed, out: Terminal) -> int:
    if args.flag("write"):
        raise Usage("'mcp uninstall' writes by itself; --dry-run only shows what")
    name = args.maybe("CLIENT")
    names = [mcp_clients.find(name).name] if name is not None else []
    machine = this_machine(args.start)
    changes = mcp_clients.uninstall_plan(names, machine, records=_kept_in(), scope=args.maybe("scope"))
    out.answer(changes=foreign_files.changes_json(changes))
    if not changes:
        out.line("Our server is in no client's configuration")
        return 0
    foreign_files.show(changes, out, nothing="not there", title_of=_title)
    if args.flag("dry-run"):
        out.say("Nothing was written: this was a dry run")
        return 0
    problems = foreign_files.carry_out(
        changes, out, ask=not args.flag("yes"), question="Write to {}?", kept_in=_kept_in()
    )
    return foreign_files.PARTLY if problems else 0


def _title(name: str) -> str:
    return mcp_clients.find(name).title


def _kept_in() -> str:
    return os.path.join(records(), foreign.MCP)


def _home(out: Terminal) -> None:
    LocalStore.open(places.home(), reporter=out.reporter).close()  # our records go there
