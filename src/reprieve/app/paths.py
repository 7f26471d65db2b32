"""Read the paths that a person or an agent names: from where they stand to where that is in the workspace."""

from __future__ import annotations

import os

from reprieve.errors import Usage


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


def _is_within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _cut(path: bytes, root: bytes) -> bytes:
    return path[len(root.rstrip(b"/")) :].lstrip(b"/")
