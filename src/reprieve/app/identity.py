"""Which workspace a directory is: by the directory itself, not by its path.

A moved or renamed folder keeps its inode and so its history. A copy has another inode and gets a history of its own.
A folder that was deleted and made again at the same path continues: that is what someone wants who lost it.
"""

from __future__ import annotations

from reprieve.model.timeline import WorkspaceRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


def recognise(
    records: Sequence[WorkspaceRecord], path: bytes, st: os.stat_result, born_at: int
) -> tuple[WorkspaceRecord | None, str]:
    """The workspace that this directory is, brought up to date, and what is new: moved, replaced, mounted over."""
    for record in records:
        if record.root == path and record.ino == st.st_ino:
            return record, ""
    for record in records:
        # the birth time tells a moved folder from a new one that got the inode of a deleted one
        if born_at and (record.dev, record.ino, record.born_at) == (st.st_dev, st.st_ino, born_at):
            return record.replace(root=path), "moved"
    for record in records:
        if record.root == path and record.dev != st.st_dev:
            return record, "mounted over"
        if record.root == path:
            return record.replace(dev=st.st_dev, ino=st.st_ino, born_at=born_at), "replaced"
    return None, ""
