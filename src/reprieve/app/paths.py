"""Read the paths that a person or an agent names: from where they stand to where that is in the workspace,
and what of it they mean.
"""

from __future__ import annotations

import os

from reprieve.errors import Usage
from reprieve.files import live_sqlite, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Selects = Callable[[bytes], bool]


def beneath_root(root: bytes, start: str, given: str) -> bytes:
    """The path relative to the root that `given` means to someone who stands in `start`. Raises Usage if outside.

    Links are not resolved inside the tree: a link's name means the link, and what a restore may follow is decided
    by the restore. Only the way to the root is compared by what it really is, since /tmp may be a link itself.
    """
    top = os.path.realpath(root)
    if os.path.isabs(given):
        named = os.fsencode(os.path.normpath(given))
        for candidate in (root, top):
            if _is_within(named, candidate):
                return _cut(named, candidate)
        folder, name = os.path.split(named)
        named = os.path.join(os.path.realpath(folder), name)
    else:
        here = os.path.realpath(os.fsencode(start))
        named = os.path.normpath(os.path.join(here, os.fsencode(given)))
    if not _is_within(named, top):
        raise Usage(f"'{given}' is outside the workspace '{os.fsdecode(root)}'")
    return _cut(named, top)


def selector(
    paths: Sequence[bytes],
    *,
    is_there: Callable[[bytes], bool] = lambda path: False,
    is_database: Callable[[bytes], bool] | None = None,
) -> Selects:
    """Whether a path is one of these, is in one of these folders, or matches one of these globs.

    The name of something that `is_there` means just that, whatever else it would match as a glob. A database means its
    logs as well, and where `is_database` can tell, one of them means all of it.
    """
    plain = {p.rstrip(b"/") for p in paths}
    globs = [p for p in plain if any(c in p for c in b"*?[") and not is_there(p)]

    has_logs = bool(globs) or any(p.endswith(live_sqlite.SUFFIXES) for p in plain)

    def is_named(path: bytes) -> bool:
        if b"" in plain or path in plain or any(above in plain for above in tree.ancestors(path)):
            return True
        if not globs:
            return False
        from fnmatch import fnmatchcase

        return any(fnmatchcase(at, glob) for glob in globs for at in (path, *tree.ancestors(path)) if at)

    def selects(path: bytes) -> bool:
        if is_named(path):
            return True
        # a database is one thing with its side files
        base = live_sqlite.owner_of(path)
        if is_database is None:
            return bool(base) and is_named(base)
        parts = (base, *live_sqlite.sidecars(base)) if base else live_sqlite.sidecars(path) if has_logs else ()
        return any(map(is_named, parts)) and is_database(base or path)

    return selects


def _is_within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _cut(path: bytes, root: bytes) -> bytes:
    return path[len(root.rstrip(b"/")) :].lstrip(b"/")
