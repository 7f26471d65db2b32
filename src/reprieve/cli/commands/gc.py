"""`reprieve gc`: give space back to the disk."""

from __future__ import annotations

from reprieve.app import care
from reprieve.cli import humane, opening
from reprieve.cli.spec import Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "gc",
    "Free the space of content that no checkpoint needs any more",
    (
        ("reprieve gc", "after an interrupted checkpoint left content that nothing needs"),
        ("reprieve gc --json", "how many objects and bytes were freed, for a script"),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out) as ws:
        objects, freed = care.gc(ws)
    out.answer(objects=objects, bytes=freed)
    out.line(f"Freed {humane.size(freed)} in {humane.count(objects, 'object')}")
    return 0
