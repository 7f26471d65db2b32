"""Files that a call names and that no workspace holds: what they were, so that a rollback can say whether they changed.

Their content is not kept. The checkpoint before the call has `"outside":{PATH:STATE}` in its data.
"""

from __future__ import annotations

import os
import stat

from reprieve.files.native import sha256
from reprieve.model.quickjson import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FIELD = '"outside":{'
_MOST = 1 << 20  # bytes that are read; a larger file is known by its size and time
_UNKNOWN = "?"


def outside_json(paths: Iterable[str]) -> str:
    """More of the data of the checkpoint before a call that names these."""
    return f'"outside":{dumps({path: _state(path) for path in paths}, is_compact=True)}'


def outside_of(data: str) -> dict[str, str]:
    """What the data of a checkpoint says: paths with their states."""
    if _FIELD not in data:
        return {}
    try:
        fields = loads(data)
    except (ValueError, RecursionError):
        return {}  # a damaged row, which is named by `verify`
    found = fields.get("outside") if isinstance(fields, dict) else None
    return {path: str(state) for path, state in found.items()} if isinstance(found, dict) else {}


def is_as_it_was(path: str, state: str) -> bool:
    """Whether it is known that a file is what it was when the state was taken."""
    return state != _UNKNOWN and _state(path) == state


def worktree_json(root: bytes, more: str) -> str:
    """More of the data of the checkpoint before or after a step: git's state, where it is a worktree linked outside."""
    from reprieve.files.worktree import state_of

    state = state_of(root)
    return ",".join(filter(None, (more, f'"worktree":"{state}"' if state else "")))


def _state(path: str) -> str:
    """The hash of what a file holds, "" if there is none."""
    try:
        st = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return _UNKNOWN
    by_size = f"{st.st_size} {st.st_mtime_ns}"
    if not stat.S_ISREG(st.st_mode) or st.st_size > _MOST:
        return by_size
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return by_size
    try:
        return sha256(os.read(fd, _MOST)).hex()
    except OSError:
        return by_size
    finally:
        os.close(fd)
