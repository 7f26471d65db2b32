"""`reprieve gateway`: stand before another MCP server and make the calls of its tools undoable."""

from __future__ import annotations

import os

from reprieve.app.finding import open_workspace
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Usage

SPEC = Command(
    "gateway",
    "Stand before another MCP server and make the calls of its tools undoable",
    (
        (
            "reprieve gateway -- npx -y @modelcontextprotocol/server-filesystem .",
            "what a client's configuration starts instead of the server",
        ),
        (
            "reprieve -C ~/project gateway --url https://example.com/mcp --header 'Authorization: Bearer env:TOKEN'",
            "a server over HTTP, offered on standard input and output",
        ),
    ),
    details=(
        "Passes everything on unchanged. Before a tool call that is not read-only it takes a checkpoint of the "
        "workspace and writes the call down as an effect; what can't be taken back waits for a person's yes. If one "
        "of these can't be done the call is refused. REPRIEVE_DISABLED=1 passes calls on without protection."
    ),
    trailing=Argument("COMMAND", "The server to start, with its arguments; after --", is_many=True),
    options=(
        Option("--url", "The server's address, for one that speaks streamable HTTP", metavar="URL"),
        Option(
            "--header",
            "A header for that server; secrets by reference: 'Authorization: Bearer env:NAME'",
            metavar="HEADER",
            is_many=True,
        ),
        Option(
            "--env",
            "A variable that the server needs again when a rollback starts it to take a call back",
            metavar="NAME",
            is_many=True,
        ),
    ),
    exit_codes=((3, "there is no workspace and none can be made here"),),
)


def run(args: Parsed, out: Terminal) -> int:
    from reprieve.app.mcp_calls import ToolCalls, server_of_command, server_of_url
    from reprieve.gateways.mcp_relay import relay
    from reprieve.store.chain import new_id

    argv, url = args.many("COMMAND"), args.text("url")
    if bool(argv) == bool(url):
        raise Usage("gateway needs one server: COMMAND after '--', or --url", hints=["see: reprieve gateway --help"])
    if args.flag("json"):
        raise Usage("'gateway' speaks MCP on standard output; it has no --json")
    if url:
        server = server_of_url(url, args.many("header"))
    else:
        server = server_of_command(argv, cwd=args.start, variables=os.environ, passed=args.many("env"))
    is_off = os.environ.get("REPRIEVE_DISABLED") == "1"
    if is_off:
        out.reporter.warn("Reprieve is switched off (REPRIEVE_DISABLED=1): no call is protected")
    else:
        open_workspace(args.start, create=True, reporter=out.reporter).close()  # where it can't be, say so now
    name = new_id()
    calls = ToolCalls(lambda: open_workspace(args.start, create=True, reporter=out.reporter), server, session=name)
    return relay(calls, server, name=name, reporter=out.reporter, is_off=is_off)
