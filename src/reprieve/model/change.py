"""What differs between two trees, and what a checkpoint could not protect."""

from __future__ import annotations

from reprieve.model.entry import Entry
from reprieve.model.value import Value

CREATED, MODIFIED, DELETED, MODE, TYPE = "created", "modified", "deleted", "mode", "type"
WORKSPACE_FILE = b"reprieve.toml"  # in the root, with excludes of the workspace's own
EXCLUDED = "excluded by configuration"  # breaks no promise
EXCLUDED_BY_WHAT_GOES = "excluded by a reprieve.toml that is taken back now; run the same command again"
UNTRACKED = "was not tracked yet at that time"  # nor does this
MAYBE_UNTRACKED = "not known whether it was tracked at that time"
UNREADABLE = "not readable (permission denied)"
TOO_LARGE = "larger than max_file_size"
BY_SETTINGS = (EXCLUDED, TOO_LARGE)  # how reasons begin that a reprieve.toml can bring about


class Gap(Value):
    """Something that a checkpoint could not protect. A rollback never deletes or changes it."""

    path: bytes
    reason: str


class Change(Value):
    """One path that differs. `before` or `after` is None where there is nothing."""

    path: bytes
    change: str  # created, modified, deleted, mode, type
    before: Entry | None
    after: Entry | None
    actor: str = "unknown"


def classify(before: Entry | None, after: Entry | None) -> str:
    """The word for a difference; "" when only times differ (or nothing does)."""
    if before is None:
        return CREATED if after is not None else ""
    if after is None:
        return DELETED
    if before.kind != after.kind:
        return TYPE
    # as Entry.same_bytes_key says; several times for each path of a move
    if before.content != after.content or before.target != after.target or before.rdev != after.rdev:
        return MODIFIED
    if before.gap != after.gap:
        return MODIFIED
    if before.mode != after.mode or before.uid != after.uid or before.gid != after.gid:
        return MODE
    if before.xattrs != after.xattrs:
        return MODE
    if before.link != after.link:
        return MODIFIED
    return ""


def how_to_open(path: bytes) -> str:
    """What a person types where nobody has the right to look. Not ours to do: nothing in it could be kept first."""
    from os import fsdecode
    from shlex import quote

    return f"chmod u+rwX {quote(fsdecode(path))}"
