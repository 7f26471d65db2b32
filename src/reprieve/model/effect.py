"""Effects: what was done to the world outside the tree, what class it has, how it is reversed and how far that is.

The states of an effect, each change a row of its own in the journal:

                 ┌────────────▶ canceled
    held ────────┤
                 └─▶ intent ──▶ done ──▶ (undo) undoing ──▶ undone │ conflict │ failed │ manual
                        │       refused                     kept: accepted, the inverse is retired
                        │                                   covered: from the start, a matter of the files alone
                        └─────▶ unknown: it may have happened

An intent whose process has died is unknown as well. Nothing that may have happened is ever taken for not done.
"""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Json = dict[str, object]

# classes, from harmless to dangerous; what is not known counts as irreversible
READ, REVERSIBLE, RESTORABLE, COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE = (
    "read",
    "reversible",
    "restorable",
    "compensable",
    "holdable",
    "irreversible",
    "opaque",
)
CLASSES = (READ, REVERSIBLE, RESTORABLE, COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE)

# states of the effect itself
HELD, CANCELED, INTENT, DONE, REFUSED, UNKNOWN = "held", "canceled", "intent", "done", "refused", "unknown"

# states of its undo; "" if nobody tried
UNDOING, UNDONE, CONFLICT, FAILED, MANUAL, KEPT = "undoing", "undone", "conflict", "failed", "manual", "kept"
COVERED = "covered"  # all that it changes is in the checkpoints around it, and comes back with the files
GONE, WANTED = "irreversible", "wanted"  # a rollback came by and could not undo it; it was still under way then
SETTLED = (UNDONE, KEPT, COVERED)  # nothing is left to do
SURVIVED = (CONFLICT, FAILED, MANUAL, GONE, WANTED)  # a rollback wanted it undone and it is not


def worst(classes: Iterable[str]) -> str:
    """The most dangerous of several; of none it is the harmless one."""
    return max(classes, key=CLASSES.index, default=READ)


class EffectDraft(Value):
    """An effect before it has its place in the journal: all that is known before it leaves."""

    kind: str  # http, command, mail, memory, git, …: which driver undoes it
    cls: str = IRREVERSIBLE
    resource: str = ""  # canonical name of what it changes: a URL, a table, a mailbox
    description: str = ""  # for people; free of secrets
    depends: tuple[str, ...] = ()  # resources that must exist for it
    inverse: Json | None = None  # typed description of the reversal; None: there is none (yet)
    request: Json | None = None  # what was asked for, free of secrets
    before: Json | None = None  # image of the resource before
    rule: str = ""  # catalog rule that the class and inverse come from
    fingerprint: str = ""  # the same for the same action, however often it is written
    call: str = ""  # id that the caller gives it: the same id twice is one effect
    expires_at: int = 0  # ns; until when it can be undone, 0: no limit known
    is_trusted: bool = True  # False: the inverse was written by an agent; running it takes a second yes


class Effect(Value):
    """An effect in its place. Facts of the intent, and the state that the rows since then lead to."""

    id: str
    seq: int  # of its first row: the one order of all effects
    workspace: str
    at: int  # number of the timeline's newest entry when it was begun
    created_at: int
    actor: str
    step: str
    window: str  # id of the window that it was done in, "" if none
    kind: str
    cls: str
    resource: str
    description: str
    depends: tuple[str, ...]
    inverse: Json | None
    request: Json | None
    before: Json | None
    after: Json | None
    reply: Json | None  # what the world answered, as far as it is needed again
    rule: str
    fingerprint: str
    call: str
    expires_at: int
    is_trusted: bool
    idem: str  # idempotency key of the effect
    undo_idem: str  # and of its undo: never the same
    state: str
    undo_state: str
    detail: str
    undo_at: int = 0  # ns; when the last undo of it was begun
    pid: int = 0  # the process that does it
    born: int = 0

    @property
    def may_have_happened(self) -> bool:
        return self.state in (INTENT, DONE, UNKNOWN)

    @property
    def is_open(self) -> bool:
        """Whether a rollback still has something to do with it, or to say about it."""
        return self.state == HELD or (self.may_have_happened and self.undo_state not in SETTLED)
