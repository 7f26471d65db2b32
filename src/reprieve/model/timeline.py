"""Entries of the timeline: what happened, in order, each chained to the one before."""

from __future__ import annotations

from reprieve.model.value import Value

CHECKPOINT, ROLLBACK, UNDO, REVERT, REDO = "checkpoint", "rollback", "undo", "revert", "redo"
PRUNE, FORGET = "prune", "forget"
ACCEPT = "accept"  # a person let weaker settings of reprieve.toml take effect

MOVES = (ROLLBACK, UNDO, REVERT, REDO)  # kinds that moved the world
PART = "part"  # what a rollback was of, if only of single paths or of one actor's work


class Draft(Value):
    """An entry before it has its place on the timeline."""

    kind: str
    created_at: int  # ns since 1970, for people; order is `seq`
    actor: str = "unknown"
    label: str = ""
    note: str = ""
    step: str = ""  # name of the step that ended here, "" if none
    delta: bytes = b""  # object id of the tree delta against the entry before; b"" = the tree did not change
    files: int = 0  # entries in the tree at this point
    size: int = 0  # bytes of all files at this point
    changed: int = 0  # paths that a person would call changed: those in the delta but for mere times, and tracked ones
    data: str = ""  # JSON object with what this kind needs more, "" = {}
    id: str = ""  # given by the caller or made by `append`


class TimelineEntry(Value):
    """An entry in its place. `hash` covers every other field and `prev`, the hash of the entry before."""

    id: str
    seq: int
    kind: str
    created_at: int
    actor: str
    label: str
    note: str
    step: str
    delta: bytes
    files: int
    size: int
    changed: int
    data: str
    prev: bytes
    hash: bytes
    is_pinned: bool = False  # mark, not part of the chain
    is_pruned: bool = False  # its tree was given up by `prune`; mark
    name: str | None = ""  # given later by `reprieve name`, None: taken away, and the label with it; mark

    @property
    def title(self) -> str:
        """What it is called, "" if nothing: a name that was given later stands for the label."""
        return "" if self.name is None else self.name or self.label


class WorkspaceRecord(Value):
    """A protected tree as the store knows it. The identity is the directory, not its path."""

    id: str
    root: bytes  # absolute path where it was last seen
    dev: int
    ino: int
    born_at: int  # birth time of the root directory in ns, 0 if the platform has none
    created_at: int
    settings: str = ""  # JSON
    intent: bytes = b""  # write-ahead intent of an operation under way, b"" if none
