"""`reprieve keep`: accept what was done; its inverses are retired."""

from __future__ import annotations

from reprieve.app import effects
from reprieve.cli import humane, opening
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "keep",
    "Accept effects: their inverses are retired and never run",
    (
        ("reprieve keep", "accept all effects up to now"),
        ("reprieve keep call:toolu_01", "accept those of one step"),
    ),
    details="Files are not touched. Held mail is not accepted: release or cancel it.",
    arguments=(Argument("STEP", "An effect's id, call:ID, step:NAME, turn:N or an id from `log`", complete="ref"),),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        kept = [effects.json_of(effect) for effect in effects.keep(ws, args.maybe("STEP"))]
    for effect in kept:
        out.line(f"  = kept      {one_line(effect)}")
    out.say(f"{humane.count(len(kept), 'effect')} kept")
    out.answer(effects=kept)
    return 0
