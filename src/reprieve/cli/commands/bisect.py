"""`reprieve bisect`: find the step after which a command fails, in scratch copies."""

from __future__ import annotations

import os
import shlex

from reprieve.app import bisect
from reprieve.app.compared import changes_json, compare_all
from reprieve.app.paths import beneath_root
from reprieve.app.render import entry_json
from reprieve.cli import humane, opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.show_changes import tally
from reprieve.cli.show_diff import show_diff
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.model.timeline import TimelineEntry

SPEC = Command(
    "bisect",
    "Find the step after which a command fails",
    (
        ("reprieve bisect -- make test", "from the oldest checkpoint to now"),
        ('reprieve bisect "before lunch" latest -- sh -c "! grep -q TODO main.c"', "between two checkpoints"),
    ),
    details=(
        "Runs CMD in copies of earlier checkpoints, in a folder for temporary files; this folder is only read. Both "
        "ends are tried first, then the middle of what is in question: 64 steps take 8 runs. CMD says by its exit "
        "code what it found: 0 is good, 125 cannot be tested, 1 to 127 is bad, anything else stops the search. It has "
        "the same sub-folder, a store of its own and no standard input; its output goes to standard error."
    ),
    arguments=(
        Argument("GOOD", f"Where CMD still succeeds; default: the oldest checkpoint. {REF_HELP}", complete="ref"),
        Argument("BAD", "Where CMD fails; default: now", complete="ref"),
    ),
    trailing=Argument("CMD", "The command and its arguments", is_required=True, is_many=True, complete="command-line"),
    exit_codes=(
        (1, "steps that cannot be tested stand between the last good and the first bad one"),
        (2, "CMD does not succeed at GOOD, or does not fail at BAD"),
        (6, "CMD was ended by a signal or with 128 or more: the search was stopped"),
    ),
)


class _Lines(bisect.Watching):
    """One line per run."""

    def __init__(self, out: Terminal, command: str) -> None:
        self.out, self.command = out, command

    def begins(self, search: bisect.Search) -> None:
        steps, runs = humane.count(search.steps, "step"), humane.count(search.runs, "run")
        self._say(f"Searching {steps} from {search.good.id} to {search.bad.id}, in {runs} of: {self.command}")

    def tried(self, result: bisect.Probe) -> None:
        style = {bisect.GOOD: "green", bisect.BAD: "red"}.get(result.word, "yellow")
        code = f"  exit code {result.exit_code}" if result.word == bisect.BAD else ""
        self._say(f"  {self.out.styled(f'{result.word:8}', style)} {_title(result.entry)}{code}")

    def _say(self, text: str) -> None:
        self.out.say(text)
        self.out.flush()  # between these lines the command writes its own


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        words = args.many("CMD")
        found = bisect.bisect(
            ws,
            words,
            good=args.maybe("GOOD"),
            bad=args.maybe("BAD"),
            where=beneath_root(ws.root, os.path.realpath(args.start), "."),
            is_silent=out.quiet,
            watching=_Lines(out, humane.safe(shlex.join(words))),
        )
        first = found.suspects[0] if len(found.suspects) == 1 else None
        if out.json:
            out.answer(
                first_bad=entry_json(first) if first else None,
                good=entry_json(found.good),
                suspects=[entry_json(entry) for entry in found.suspects],
                runs=len(found.probes),
                tried=[{"id": p.entry.id, "result": p.word, "exit_code": p.exit_code} for p in found.probes],
                changes=changes_json(ws, found.changes, b_is_live=False),
                undo=bisect.way_back(ws, found) or None,
            )
        elif first is not None:
            _show_step(first, found, out)
            show_diff(out, compare_all(ws, found.changes, b_is_live=False))
            if undo := bisect.way_back(ws, found):
                out.say(f"Take it back: {undo}")
            else:
                out.say(f"Part of it was pruned, so it can't be undone; go back: reprieve rollback {found.good.id}")
        else:
            out.line(f"The first bad step is one of {len(found.suspects)}; those between cannot be tested:")
            for entry in found.suspects:
                out.line(f"  {_title(entry)}")
            out.say(f"What they did together: reprieve diff {found.good.id} {found.suspects[-1].id}")
    return 0 if first is not None else 1


def _show_step(entry: TimelineEntry, found: bisect.Found, out: Terminal) -> None:
    runs = humane.count(len(found.probes), "run")
    out.line(f"First bad step, found in {runs}: {_title(entry)}", "bold")
    facts = (
        ("Actor", entry.actor),
        ("Step", entry.step if entry.step != entry.title else ""),
        ("Note", entry.note),
        ("Made", f"{humane.moment(entry.created_at)}, {humane.age(entry.created_at)}"),
    )
    for name, text in facts:
        if text:
            out.line(f"  {name + ':':7} {humane.safe(text)}")
    out.line(f"  {tally(found.changes)}" if found.changes else "  Only times changed")


def _title(entry: TimelineEntry) -> str:
    label = humane.safe(entry.title)
    kind = "" if entry.kind == "checkpoint" else f"  {entry.kind}"
    return f'{entry.id}{kind}  "{label}"' if label else f"{entry.id}{kind}"
