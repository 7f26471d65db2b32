"""Reprieve: undo for AI agents.

    import reprieve

    with reprieve.open(".") as ws:
        before = ws.checkpoint("before refactor")
        ...
        report = ws.rollback(before)

The public Python API; everything else is private. Names are loaded on first use, because every hook call imports
this package and pays for what it loads.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve import http
    from reprieve.app.public import Workspace
    from reprieve.app.public import Workspace as open  # noqa: A004 - reprieve.open, as in the contract
    from reprieve.app.turns import Conversation
    from reprieve.errors import (
        BadRef,
        Conflict,
        Interrupted,
        Misconfigured,
        Partial,
        Refused,
        Repeated,
        ReprieveError,
        StoreCorrupted,
        StoreFailed,
        StoreLocked,
        StoreUnavailable,
        Usage,
    )
    from reprieve.model.effect import Effect
    from reprieve.model.plan import Plan, Report
    from reprieve.model.reporter import Reporter
    from reprieve.version import VERSION as __version__

__all__ = [
    "BadRef",
    "Conflict",
    "Conversation",
    "Effect",
    "Interrupted",
    "Misconfigured",
    "Partial",
    "Plan",
    "Refused",
    "Repeated",
    "Report",
    "Reporter",
    "ReprieveError",
    "StoreCorrupted",
    "StoreFailed",
    "StoreLocked",
    "StoreUnavailable",
    "Usage",
    "Workspace",
    "__version__",
    "http",
    "open",
]

_ELSEWHERE = {
    "Conversation": ("reprieve.app.turns", "Conversation"),
    "Effect": ("reprieve.model.effect", "Effect"),
    "Plan": ("reprieve.model.plan", "Plan"),
    "Report": ("reprieve.model.plan", "Report"),
    "Reporter": ("reprieve.model.reporter", "Reporter"),
    "Workspace": ("reprieve.app.public", "Workspace"),
    "__version__": ("reprieve.version", "VERSION"),
    "open": ("reprieve.app.public", "Workspace"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'reprieve' has no attribute {name!r}")
    from importlib import import_module

    if name == "http":
        return import_module("reprieve.http")
    module, attribute = _ELSEWHERE.get(name, ("reprieve.errors", name))
    return getattr(import_module(module), attribute)
