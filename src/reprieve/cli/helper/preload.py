"""What the helper has loaded before it forks, and which files that was read from."""

from __future__ import annotations

import os
import sys

from reprieve.agents import registry
from reprieve.cli import catalog
from reprieve.policy.redact import redact
from reprieve.store import codec
from reprieve.store.hashing import sha256

SERVED = ("hook", "checkpoint", "rollback", "revert", "redo", "undo", "status", "diff", "log", "show")  # as launcher.c
# What those commands import only when they come to it. `tests/cli/test_helper.py` says if one is missing.
LATE = (
    "_queue",
    "array",
    "difflib",
    "json",
    "reprieve.app.annexes",
    "reprieve.app.beyond",
    "reprieve.app.hooks",
    "reprieve.app.moves",
    "reprieve.app.outside",
    "reprieve.app.persons",
    "reprieve.app.render",
    "reprieve.app.run",
    "reprieve.app.steps",
    "reprieve.cli.hooking",
    "reprieve.cli.main",
    "reprieve.cli.pager",
    "reprieve.cli.progress",
    "reprieve.files.disbelief",
    "reprieve.files.gitindex",
    "reprieve.files.ignore",
    "reprieve.files.links",
    "reprieve.files.merge",
    "reprieve.files.room",
    "reprieve.model.quickjson",
    "reprieve.rollback.execute",
    "reprieve.rollback.selective",
    "reprieve.rollback.takeout",
    "reprieve.store.ballast",
    "reprieve.store.blobs",
    "reprieve.store.local",
    "reprieve.store.packs",
    "reprieve.store.unpack",
    "reprieve.version",
    "tomllib",
)


def load() -> None:
    """Import it all, and make what is made once per process."""
    for name in SERVED:
        catalog.load(name)
    for name in registry.NAMES:
        registry.load(name)
    for name in LATE:
        __import__(name)
    codec.compress(b"")
    sha256.hurry()
    redact("mysql -px token=x")


def files() -> list[str]:
    """Where everything came from that an upgrade may change; of Python itself one file stands for all."""
    library = os.path.dirname(os.__file__) + os.sep
    found = {os.__file__, os.path.realpath(sys.executable)}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and (not path.startswith(library) or "site-packages" in path):
            found.add(path)
    return sorted(found)
