"""This machine as `agents` wants to see it: whose home, which project, and how our own command is called."""

from __future__ import annotations

import os
import sys

from reprieve.agents.machine import Machine
from reprieve.app import places
from reprieve.app.hook_places import project_of


def this_machine(start: str) -> Machine:
    return Machine(
        home=os.path.expanduser("~"),
        project=project_of(start),
        platform=sys.platform,
        variables=dict(os.environ),
        command=_command(),
    )


def records() -> str:
    """Where it is kept what foreign files held before our entries."""
    return os.path.join(places.home(), "agents")


def _command() -> tuple[str, ...]:
    """Ourselves, absolute: agents that are started from a desktop have another PATH. Links are not resolved."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), "reprieve")
    called = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == "reprieve" else ""
    for path in (called, beside, shutil.which("reprieve") or ""):
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return (path,)
    return (sys.executable, "-m", "reprieve")
