"""`reprieve init`: make a directory a workspace."""

from __future__ import annotations

import os

from reprieve.app.doctor import file_system
from reprieve.app.render import path_text
from reprieve.cli import humane, opening
from reprieve.cli.spec import Command, Parsed
from reprieve.cli.terminal import Terminal

SPEC = Command(
    "init",
    "Make this directory a workspace",
    (
        ("reprieve init", "protect the current directory from now on"),
        ("reprieve -C ~/project init", "the same for another one"),
    ),
    details=(
        "Doing it twice changes nothing. `checkpoint` and `run` do it by themselves where that is harmless. "
        "History lives in the store (REPRIEVE_HOME), not in the directory. What its file system cannot keep is said."
    ),
    options=(opening.ANYWHERE,),
)


def run(args: Parsed, out: Terminal) -> int:
    with opening.workspace(args, out, create=True) as ws:
        warnings = [finding.text for finding in file_system(ws)]
        out.answer(workspace={"id": ws.id, "root": path_text(ws.root)}, warnings=warnings)
        out.line(f"This is a workspace: {humane.path(ws.root)}")
        if os.path.realpath(ws.root) != os.path.realpath(os.fsencode(args.start)):
            out.say(f"'{humane.safe(args.start)}' is protected as a part of it")
        for text in warnings:
            out.reporter.warn(f"on this file system {text}")
        out.say("Take a checkpoint with: reprieve checkpoint")
    return 0
