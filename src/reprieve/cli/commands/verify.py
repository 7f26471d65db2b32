"""`reprieve verify`: check that everything that was stored is still what it was."""

from __future__ import annotations

from reprieve.app.care import verify
from reprieve.cli import humane, opening
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import StoreCorrupted, Usage

SPEC = Command(
    "verify",
    "Check stored content and the timeline against their hashes",
    (
        ("reprieve verify", "check everything"),
        ("reprieve verify --sample 10%", "check a tenth of the content, picked at random"),
    ),
    options=(Option("--sample", "Check only this share of the content, such as 10% or 0.1", metavar="SHARE"),),
    exit_codes=((13, "something is damaged; each object is named"),),
)


def run(args: Parsed, out: Terminal) -> int:
    sample = _share(args.text("sample", "1"))
    with opening.workspace(args, out) as ws:
        checked = verify(ws, sample=sample)
    out.answer(objects=checked.objects, entries=checked.entries, problems=list(checked.problems))
    if checked.problems:
        raise StoreCorrupted(
            f"{humane.count(len(checked.problems), 'problem')} in the store",
            details=checked.problems,
            hints=[
                "checkpoints that do not need the damaged content are usable as before",
                "content that is still in the tree is stored anew by: reprieve checkpoint",
            ],
        )
    out.line(
        f"Checked {humane.count(checked.objects, 'object')} and "
        f"{humane.count(checked.entries, 'entry', 'entries')} of the timeline: all is well"
    )
    return 0


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise Usage(f"--sample needs a share such as 10% or 0.1, not '{text}'")
    return share
