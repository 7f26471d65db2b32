"""`reprieve prune`: give up old checkpoints."""

from __future__ import annotations

from reprieve.app.care import Pruned, prune
from reprieve.app.config import parse_size
from reprieve.app.render import entry_json
from reprieve.cli import humane, opening
from reprieve.cli.commands.log import describe
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Refused, Usage

SPEC = Command(
    "prune",
    "Give up old checkpoints by count, age and size",
    (
        ("reprieve prune --dry-run", "see what the settings would give up"),
        ("reprieve prune --keep-last 20 --keep-days 0", "keep the twenty newest and what is pinned"),
    ),
    details=(
        "Pinned checkpoints, those named by 'reprieve name', and the latest one always stay; a label alone keeps none. "
        "Entries stay on the timeline; what goes is "
        "their trees and the content that nothing else needs. Without options the settings `retention.*` hold."
    ),
    options=(
        Option("--dry-run", "Show what would go and stop"),
        Option("--yes", "Do not ask", short="-y"),
        Option("--keep-last", "Keep this many of the newest", metavar="N"),
        Option("--keep-days", "Keep what is younger than N days", metavar="N"),
        Option("--max-bytes", "Give up the oldest until the store is no larger, such as 2GB", metavar="SIZE"),
    ),
    exit_codes=((5, "not confirmed: without a terminal it needs --yes"),),
)


def _confirm(planned: Pruned, out: Terminal) -> None:
    """Raises Refused unless a person at a terminal agrees, or there is nothing to delete."""
    count = humane.count(len(planned.entries), "entry", "entries")
    if planned.entries and not out.is_interactive:
        raise Refused(
            f"this would delete {count} of the history for good, and nobody is there to confirm it; nothing changed",
            hints=["see what would go: --dry-run", "if that is what you want: --yes"],
        )
    for entry in planned.entries:
        out.line(describe(entry, out))
    if planned.entries and not out.confirm(f"Give up {count} for good?"):
        raise Refused("not confirmed; nothing was given up")


def run(args: Parsed, out: Terminal) -> int:
    keep_last, keep_days = args.number("keep-last"), args.number("keep-days")
    given = args.maybe("max-bytes")
    max_bytes = parse_size(given) if given is not None else None
    if given is not None and max_bytes is None:
        raise Usage(f"--max-bytes needs a size such as 2GB, not '{given}'")
    with opening.workspace(args, out) as ws:
        config = ws.config
        last = config.retention_keep_last if keep_last is None else keep_last
        days = config.retention_keep_days if keep_days is None else keep_days
        largest = config.retention_max_bytes if max_bytes is None else max_bytes
        is_dry = args.flag("dry-run")
        if not is_dry and not args.flag("yes"):
            planned = prune(ws, keep_last=last, keep_days=days, max_bytes=largest, dry_run=True)
            _confirm(planned, out)
        pruned = prune(ws, keep_last=last, keep_days=days, max_bytes=largest, dry_run=is_dry)
    out.answer(
        dry_run=is_dry,
        pruned=[entry_json(entry) for entry in pruned.entries],
        kept=pruned.kept,
        objects=pruned.objects,
        bytes=pruned.bytes,
    )
    for entry in pruned.entries:
        out.say(describe(entry, out))
    verb = "Would give up" if is_dry else "Gave up"
    freed = f", {humane.size(pruned.bytes)} freed" if not is_dry else ""
    given_up = humane.count(len(pruned.entries), "entry", "entries")
    out.line(f"{verb} {given_up}, {humane.count(pruned.kept, 'checkpoint')} stay{freed}")
    return 0
