"""`reprieve log`: the timeline, newest first."""

from __future__ import annotations

from reprieve.app.beside import NewestFirst, found_in, merged
from reprieve.app.render import entry_json
from reprieve.cli import humane, opening
from reprieve.cli.choices import ACTOR
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.model.actor import matches, said
from reprieve.model.timeline import ACCEPT, CHECKPOINT, FORGET, MOVES, PRUNE, TimelineEntry

SPEC = Command(
    "log",
    "Show the timeline, newest first",
    (
        ("reprieve log -n 5", "the five newest entries"),
        ('reprieve log --search "refactor"', "entries that speak of it"),
    ),
    details="Checkpoints whose tree was given up by `prune` are left out unless --all asks for them.",
    options=(
        Option("--number", "Show at most N entries; 0 means all", metavar="N", short="-n", default="30 on a terminal"),
        Option("--all", "Also show what was pruned, and housekeeping"),
        Option("--search", "Only entries whose label, note, step or actor contains TEXT", metavar="TEXT"),
        Option("--actor", ACTOR, metavar="ACTOR", complete="actor"),
    ),
)
_ON_A_TERMINAL = 30


def run(args: Parsed, out: Terminal) -> int:
    number = args.number("number")
    if number is None:
        number = _ON_A_TERMINAL if out.is_terminal and not out.json and not args.flag("all") else 0
    kinds = () if args.flag("all") else (CHECKPOINT, *MOVES)
    needle = args.text("search").casefold()
    actor = args.text("actor")
    shown: list[dict[str, object]] = []
    is_empty = True
    with opening.timeline(args, out) as ws, out.paged():
        left = number or -1
        for entry in merged(ws.log(search=args.text("search"), kinds=kinds), NewestFirst(ws)):
            if isinstance(entry, dict):
                if (actor and not matches(str(entry["actor"]), actor)) or not found_in(entry, needle):
                    continue
                is_empty = False
                shown.append({**entry, "kind": "effect", "effect_kind": entry["kind"]})
                id = out.styled(f"{entry['id']:12}", "yellow")
                out.line(f"{id}  effect      {one_line(entry, is_in_log=True)}")
            else:
                if entry.is_pruned and not args.flag("all"):
                    continue
                if actor and not matches(entry.actor, actor):
                    continue
                is_empty = False
                if out.json:
                    shown.append(entry_json(entry))
                else:
                    out.line(describe(entry, out))
            left -= 1
            if left == 0 or out.is_closed:
                break
        if is_empty:
            if args.text("search") or actor:
                out.line("Nothing found")
            else:
                out.line("Nothing on the timeline yet")
                out.say("Take a checkpoint with: reprieve checkpoint")
    out.answer(entries=shown)
    return 0


def describe(entry: TimelineEntry, out: Terminal) -> str:
    """An entry in one line: id, kind, age, label, what changed."""
    label = humane.safe(entry.title)
    words = [out.styled(f"{entry.id:12}", "yellow"), f"{entry.kind:10}", f"{humane.age(entry.created_at):14}"]
    if label:
        words.append(f'"{label}"')
    if entry.step and entry.step != entry.title:
        words.append(f"step {humane.safe(entry.step)}")
    if entry.actor and entry.actor != "unknown":
        words.append(f"by {humane.safe(said(entry.actor))}")
    if entry.kind not in (PRUNE, FORGET, ACCEPT):
        words.append(f"{humane.count(entry.changed, 'path')} changed" if entry.changed else "no change")
    if entry.is_pinned:
        words.append("pinned")
    if entry.is_pruned:
        words.append("pruned")
    return "  ".join(words)
