"""`reprieve mcp`: the server for agents that speak the Model Context Protocol."""

from __future__ import annotations

from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Misconfigured, Usage

SPEC = Command(
    "mcp",
    "Serve this folder to an agent over the Model Context Protocol",
    (
        ("reprieve mcp --http --port 7373", "serve over HTTP on this machine only, with a token"),
        ("reprieve mcp install cursor --write", "have a client start it; without --write: print what to put where"),
    ),
    details=(
        "Needs the extra: pip install 'reprieve[mcp]'. The folder is the one it is started in (or -C DIR); no call can "
        "name another. What takes something back is planned first, and applied after a person's yes wherever a "
        "person's files or effects are concerned: in the client's own form, or by `reprieve approve`. Over HTTP each "
        "request needs the token, which is in a file that only you can read; its place is printed. `install` knows "
        "claude-code, claude-desktop, cursor, vscode, windsurf, gemini, codex, opencode, zed and goose."
    ),
    arguments=(
        Argument("VERB", "Set up a client instead of serving", choices=("install", "uninstall")),
        Argument("CLIENT", "Which one; `uninstall` without a name: all"),
    ),
    options=(
        Option("--http", "Serve streamable HTTP on 127.0.0.1 instead"),
        Option("--port", "With --http: the port; 0 means any that is free", metavar="N", default="7373"),
        Option("--new-token", "With --http: make a new token; the old one ends"),
        Option("--write", "With install: write to the client's file, after showing the change"),
        Option(
            "--scope",
            "With install and uninstall: every folder of yours, or this project alone",
            metavar="SCOPE",
            choices=("user", "project"),
            default="user",
        ),
        Option("--dry-run", "With uninstall: show the changes and stop"),
        Option("--yes", "With install and uninstall: do not ask", short="-y"),
    ),
    exit_codes=((3, "a configuration file can't be changed"), (5, "not confirmed"), (6, "not all could be done")),
)


def run(args: Parsed, out: Terminal) -> int:
    if args.maybe("VERB"):
        from reprieve.cli import mcp_setup

        return mcp_setup.run(args, out)
    alien = [name for name in ("write", "dry-run", "yes") if args.flag(name)] + ["scope"] * bool(args.maybe("scope"))
    if alien:
        raise Usage(f"--{alien[0]} goes with 'mcp install' and 'mcp uninstall'")
    if not args.flag("http") and (args.maybe("port") or args.flag("new-token")):
        raise Usage("--port and --new-token go with --http")
    port = args.number("port")
    if port is not None and port > 65535:
        raise Usage(f"there is no port {port}")
    try:
        import mcp.server.lowlevel.server  # noqa: F401 - is it there?
    except ImportError as e:
        raise Misconfigured(
            "the MCP server needs a library that is not installed", hints=["pip install 'reprieve[mcp]'"]
        ) from e
    if args.flag("http"):
        from reprieve.mcp.http import serve_http

        serve_http(args.start, 7373 if port is None else port, say=out.error_line, is_new_token=args.flag("new-token"))
    else:
        from reprieve.mcp.server import serve_stdio

        serve_stdio(args.start)
    return 0
