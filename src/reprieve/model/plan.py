"""Plans and reports: exactly what a rollback would do, and what it did."""

from __future__ import annotations

from reprieve.model.change import EXCLUDED, UNTRACKED, Gap
from reprieve.model.entry import DIR, Entry
from reprieve.model.value import Value

# kinds of actions, as in the JSON
WRITE, DELETE, MKDIR, SYMLINK, MODE, GIT, EFFECT, THREAD = (
    "write",
    "delete",
    "mkdir",
    "symlink",
    "mode",
    "git",
    "effect",
    "thread",
)

NO_SOCKET = "a socket cannot be recreated; its program makes it when it starts"


class Choices(Value):
    """How to decide what is not plain."""

    on_conflict: str = "abort"  # abort, keep, theirs, merge, both
    take_pushed: bool = False  # also take back commits that were pushed since
    unpushed: frozenset[str] = frozenset()  # remote branches whose pushes are undone together with the files
    is_strict: bool = False  # one step out of many: moved files are not followed, shared git history is a conflict


class Action(Value):
    """One path that the plan moves from `before` (what is there now) to `after`."""

    kind: str
    path: bytes
    verb: str  # restore, recreate, delete, replace, merge, chmod, set times, relink
    before: Entry | None
    after: Entry | None
    actor: str = "unknown"
    reason: str = ""
    database: bytes = b""  # the one that it is a part of, if more than one part of it moves: all of them, or none
    is_marked: bool = False  # what it writes has conflict markers, for a person to decide
    is_index: bool = False  # of such a database's log: made again by whoever opens it, so nothing depends on what it is

    @property
    def is_times(self) -> bool:
        """Of a directory, and nothing but its times: they follow from what is in it."""
        return self.verb == "set times" and self.after is not None and self.after.kind == DIR


class Conflicted(Value):
    """A path that is not as it was left: both sides, and why."""

    path: bytes
    reason: str
    actor: str = "unknown"
    current: Entry | None = None
    wanted: Entry | None = None


class Kept(Value):
    """A path that differs from the target and stays as it is, with the reason (a person's, a gap, --only)."""

    path: bytes
    reason: str
    actor: str = "unknown"


# what is done with an effect
UNDO_EFFECT, CANCEL_EFFECT, LEAVE_EFFECT, KEEP_EFFECT, CLASH = "undo", "cancel", "leave", "keep", "conflict"


class EffectAction(Value):
    """One effect of a plan. Small: a plan may have a hundred thousand."""

    effect: str  # id
    verb: str  # undo, cancel, leave (can't be undone, with the reason), keep (a person's), conflict
    kind: str
    cls: str
    description: str
    reason: str  # what will be done, or why nothing can be
    actor: str = "unknown"
    is_trusted: bool = True  # False: an agent wrote the inverse
    account: str = ""  # that it was done in, and is undone in, as far as something names it


class EffectOutcome(Value):
    """What became of one effect."""

    id: str
    state: str  # undone, canceled; conflict, failed, manual, irreversible, wanted, pending: it is not undone
    detail: str
    description: str = ""
    account: str = ""

    @property
    def is_undone(self) -> bool:
        return self.state in ("undone", "canceled", "kept", "refused")


class Plan(Value):
    """The exact list of what would be done. Approval is bound to `id`, the hash of everything in it."""

    id: str
    kind: str  # rollback, undo, revert, redo
    target: str  # id of the checkpoint (or operation) that it goes back to
    label: str  # of the target, for people
    actions: tuple[Action, ...]
    conflicts: tuple[Conflicted, ...] = ()
    kept: tuple[Kept, ...] = ()
    not_undone: tuple[Gap, ...] = ()
    of: str = ""  # redo: the operation that it takes back; undo: the step; rollback: PART if not all since is meant
    dependants: tuple[str, ...] = ()  # undo: ids of later entries that need what it would take back
    contents: tuple[tuple[bytes, bytes], ...] = ()  # (object id, bytes) that merges made; their ids are in the actions
    effects: tuple[EffectAction, ...] = ()  # newest first
    is_idle: bool = False  # undo: the step changed no file here
    gaps: tuple[Gap, ...] = ()  # what it is about and is not protected now: nobody knows whether it differs

    @property
    def has_more_than_times(self) -> bool:
        """Whether it moves, or would have to move, anything but the times of directories."""
        return bool(self.conflicts) or not all(action.is_times for action in self.actions)


class Report(Value):
    """What was done."""

    operation: str  # id of the timeline entry; "" if nothing had to be done
    restored: tuple[bytes, ...] = ()  # written, recreated, mode or times set
    deleted: tuple[bytes, ...] = ()
    kept: tuple[Kept, ...] = ()
    conflicts: tuple[Conflicted, ...] = ()
    not_undone: tuple[Gap, ...] = ()
    safety_checkpoint: str = ""
    redo: str = ""  # the command that takes it back
    effects: tuple[EffectOutcome, ...] = ()
    marked: tuple[Conflicted, ...] = ()  # written with conflict markers: a person has to decide; conflicts in the JSON
    held_open: tuple[Gap, ...] = ()  # taken back, and a program has the old file open and will go on writing to it

    @property
    def is_partial(self) -> bool:
        """Something that should have been taken back was not.

        What a person excluded is left alone as asked; what was not tracked then was not promised; a socket has no
        content, its program makes it anew.
        """
        harmless = (EXCLUDED, UNTRACKED, NO_SOCKET)
        if not all(effect.is_undone for effect in self.effects):
            return True
        return bool(self.conflicts or self.marked) or any(not gap.reason.endswith(harmless) for gap in self.not_undone)
