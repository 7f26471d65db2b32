"""Look at everything, and see whether the helper told of all that changed. If not it is never believed again."""

from __future__ import annotations

import os
import struct
import time

from reprieve.files import native, told, tree
from reprieve.files.index import load_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.snapshot import Limits
    from reprieve.store.protocols import Buffer

_OPEN_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Check:
    """Of one tree against its index; stats only, nothing is read or written."""

    def __init__(self, root: bytes, index_path: str, limits: Limits) -> None:
        self.root, self.index_path, self.limits = root, index_path, limits

    def __call__(self) -> None:
        try:
            fd = os.open(self.root, _OPEN_ROOT)
        except OSError:
            return  # it is gone: nothing to compare
        try:
            path = self.untold(fd)
            if path is not None:
                told.say_it_lied(fd, path)
        finally:
            os.close(fd)

    def untold(self, fd: int) -> bytes | None:
        """A path that is not as in the index though the helper did not say so; None if there is none, or no telling."""
        loaded = load_index(self.index_path, None)
        if loaded is None or loaded.base is None or loaded.mark is None:
            return None
        excludes = self.limits.excludes
        accept = excludes.accepts if excludes is not None and not excludes.is_empty else None
        now = divmod(time.time_ns(), 1_000_000_000)
        try:
            rows, gone, _ = native.scan(fd, loaded.base, *now, self.limits.cross_mounts, accept, self.limits.skip)
        except (ValueError, OSError):
            return None  # the index is damaged, or the tree moves while we look
        # asked after the look, so that all that was seen was heard
        word = told.ask(fd, loaded.mark)
        if word is None or word.paths is None:
            return None
        numbers = told.rows_to_look_at(loaded.base, word.paths)
        looked_at = set(struct.unpack(f"={len(numbers) // 4}I", numbers))
        for row in range(tree.count(rows)):
            path = native.get(rows, row)[0]
            if not _is_told(loaded.base, path, looked_at, is_gone=False):
                return path
        return next((path for path in gone if not _is_told(loaded.base, path, looked_at, is_gone=True)), None)


def _is_told(index: Buffer, path: bytes, looked_at: set[int], *, is_gone: bool) -> bool:
    """Whether a partial look would have come upon it."""
    row = native.find(index, path)
    if row in looked_at:
        return True
    if row >= 0 and not is_gone:
        return False
    # what is new is found in the nearest directory that is known, what is gone may have gone with any above it
    for above in tree.ancestors(path):
        row = native.find(index, above)
        if row in looked_at:
            return True
        if row >= 0 and not is_gone:
            return False
    return False
