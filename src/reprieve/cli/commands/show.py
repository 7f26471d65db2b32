"""`reprieve show`: one entry of the timeline, whole."""

from __future__ import annotations

from reprieve.app.beside import between, find_effect, is_lost
from reprieve.app.compared import changes_json
from reprieve.app.render import checkpoint_json
from reprieve.cli import humane, opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.show_changes import show_changes
from reprieve.cli.show_effects import one_line, whole
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.model.timeline import TimelineEntry

SPEC = Command(
    "show",
    "Show one entry whole: what it is and what it changed",
    (
        ("reprieve show latest", "the newest checkpoint"),
        ('reprieve show "before the refactoring"', "the checkpoint of that label"),
    ),
    arguments=(Argument("REF", REF_HELP, is_required=True, complete="ref"),),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.timeline(args, out) as ws:
        if (found := find_effect(ws, args.text("REF"))) is not None:
            from reprieve.app.effects import json_of

            shown = json_of(found)
            out.answer(effect=shown)
            for line in whole(shown):
                out.line(line)
            return 0
        entry = ws.resolve(args.text("REF"))
        before = ws.timeline.at(entry.seq - 1)
        changes = ws.diff(before.id, entry.id).changes if before is not None and not before.is_pruned else ()
        effects = between(ws, before.seq if before is not None else 0, entry.seq)
        is_known = not is_lost(entry, before)
        if out.json:
            out.answer(
                entry=checkpoint_json(entry),
                changes=changes_json(ws, changes, b_is_live=False),
                changes_known=is_known,
                effects=effects,
            )
            return 0
        with out.paged():
            for name, text in _facts(entry):
                out.line(f"{name + ':':10} {text}")
            out.line()
            show_changes(out, changes, none=_nothing(entry, is_known=is_known), limit=0)
            for effect in effects:
                out.line(one_line(effect))
    return 0


def _nothing(entry: TimelineEntry, *, is_known: bool) -> str:
    if not is_known:
        paths = humane.count(entry.changed, "path")
        return f"It changed {paths}; what was there before it was pruned, so which ones is not known"
    return "It changed nothing" if entry.seq > 1 else "It is the first of its timeline"


def _facts(entry: TimelineEntry) -> list[tuple[str, str]]:
    facts = [
        (entry.kind.capitalize(), entry.id),
        ("Label", humane.safe(entry.title)),
        ("Made", f"{humane.moment(entry.created_at)}, {humane.age(entry.created_at)}"),
        ("Actor", humane.safe(entry.actor)),
        ("Step", humane.safe(entry.step)),
        ("Note", humane.safe(entry.note)),
        ("Tree", f"{humane.count(entry.files, 'file')}, {humane.size(entry.size)}"),
        ("Pinned", "yes" if entry.is_pinned else ""),
        ("Pruned", "yes: its tree was given up" if entry.is_pruned else ""),
    ]
    return [(name, text) for name, text in facts if text]
