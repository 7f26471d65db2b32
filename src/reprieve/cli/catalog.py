"""Which commands there are, in the order of the help, and how one of them is loaded."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from reprieve.cli.spec import Command, Parsed
    from reprieve.cli.terminal import Terminal

    Runner = Callable[[Parsed, Terminal], int]

GROUPS = (
    ("Protect and look", ("checkpoint", "run", "watch", "track", "status", "diff", "log", "show")),
    ("Take back", ("rollback", "undo", "revert", "redo", "bisect")),
    ("Beyond files", ("effects", "record", "mail", "compensate", "keep", "approvals", "approve", "deny", "thread")),
    ("Keep in order", ("name", "pin", "prune", "gc", "forget", "verify", "doctor")),
    ("Serve", ("mcp", "gateway")),
    ("Set up", ("protect", "unprotect", "hook", "init", "config", "completion", "help")),
)
HIDDEN = {"__complete": "complete"}  # what shells call, and the module that answers
NAMES = tuple(name for _, names in GROUPS for name in names)


def load(name: str) -> tuple[Command, Runner] | None:
    """The command's description and what runs it; imports that one module only."""
    if name not in NAMES and name not in HIDDEN:
        return None
    # __import__ and not importlib: the latter is one more module on the hot path
    module: Any = __import__(f"reprieve.cli.commands.{HIDDEN.get(name, name)}", fromlist=["SPEC"])
    return module.SPEC, module.run


def find(name: str) -> Command | None:
    """The description of the command of that name."""
    loaded = load(name)
    return loaded[0] if loaded else None


def every() -> list[Command]:
    """All descriptions, in the order of the help."""
    return [command for command in map(find, NAMES) if command is not None]
