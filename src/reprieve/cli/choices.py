"""Options that several commands share."""

from __future__ import annotations

from reprieve.cli.spec import Option

ON_CONFLICT = Option(
    "--on-conflict",
    "What to do about paths that others changed as well: stop, keep them as they are, take the checkpoint's, write "
    "merge markers, or keep them and put the checkpoint's beside them",
    metavar="CHOICE",
    choices=("abort", "keep", "theirs", "merge", "both"),
    default="abort",
)
ACTOR = "An actor as `log` shows it: run:LABEL, claude-code:SESSION, person; a first part (run, claude-code) means all"
