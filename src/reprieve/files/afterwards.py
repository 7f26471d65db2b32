"""What can wait until the caller has its answer: work that nobody asked for and that may as well never be done.

Only a process that lives on after it has answered has such a time (cli/helper/stead); in all others there is no later.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_works: list[Callable[[], object]] | None = None


def expect() -> None:
    """This process will call `run`."""
    global _works
    _works = []


def is_expected() -> bool:
    """Whether there is such a time."""
    return _works is not None


def leave(work: Callable[[], object]) -> bool:
    """Have that done when the caller has its answer; False if there is no such time."""
    if _works is None:
        return False
    _works.append(work)
    return True


def run() -> None:
    """Do all of it."""
    while _works:
        _works.pop(0)()
