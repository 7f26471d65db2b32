"""`reprieve diff`: what differs between two points, or between one and now."""

from __future__ import annotations

from reprieve.app.beside import since
from reprieve.app.compared import changes_json, compare_all
from reprieve.app.patch import stat_lines
from reprieve.app.paths import beneath_root
from reprieve.app.render import entry_json, gap_json
from reprieve.cli import opening
from reprieve.cli.choices import ACTOR
from reprieve.cli.gaps import show_unprotected
from reprieve.cli.refs import REF_HELP
from reprieve.cli.show_diff import show_diff, write_line
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.model.actor import matches

SPEC = Command(
    "diff",
    "Show what differs, line by line",
    (
        ("reprieve diff", "from the latest checkpoint to now"),
        ("reprieve diff ~3 ~1 -- src", "between two checkpoints, in one folder"),
    ),
    details=(
        "Created and deleted paths, modes and types are included. The output is a patch in git's format. Without a "
        "REF: from the latest checkpoint to now; with one: from there to now."
    ),
    arguments=(
        Argument("REF", REF_HELP, complete="ref"),
        Argument("OTHER", "The other end, instead of now", complete="ref"),
    ),
    trailing=Argument("PATH", "Only these files and folders", is_many=True, complete="path"),
    options=(
        Option("--stat", "Only how much changed in each path"),
        Option("--actor", "Only paths that this one changed. " + ACTOR, metavar="ACTOR", complete="actor"),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    other = args.maybe("OTHER")
    with opening.workspace(args, out) as ws:
        paths = tuple(beneath_root(ws.root, args.start, path) for path in args.many("PATH"))
        found = ws.diff(args.maybe("REF"), other, paths)
        if actor := args.text("actor"):
            found = found.replace(changes=tuple(c for c in found.changes if matches(c.actor, actor)))
        until = ws.resolve(other).seq if other else 0
        effects = since(ws, found.base, until=until) if not paths else []
        if out.json:
            out.answer(
                since=entry_json(found.base) if found.base else None,
                changes=changes_json(ws, found.changes, b_is_live=other is None),
                effects=effects,
                gaps=[gap_json(gap) for gap in found.gaps],
            )
            return 0
        if found.base is None:
            show_unprotected(out)
            return 0
        with out.paged():
            compared = compare_all(ws, found.changes, b_is_live=other is None)
            if args.flag("stat"):
                for line in stat_lines(list(compared)):
                    write_line(out, line)
            else:
                show_diff(out, compared)
            for effect in effects:
                out.line("effect  " + one_line(effect))
    if not found.changes and out.is_terminal:
        out.say("Nothing differs")
    return 0
