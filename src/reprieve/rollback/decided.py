"""What `selective.decide` is given and what it answers."""

from __future__ import annotations

from reprieve.model.change import Gap
from reprieve.model.entry import Entry
from reprieve.model.plan import Conflicted, Kept
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.rollback.chains import Chain, Link
    from reprieve.rollback.databases import IsDatabase, There
    from reprieve.rollback.takeout import Make, Read


class Decided(Value):
    """What is to be done, and what is not."""

    differences: tuple[tuple[bytes, Entry | None, Entry | None], ...]  # path, wanted, current
    conflicts: tuple[Conflicted, ...] = ()
    kept: tuple[Kept, ...] = ()
    left: tuple[Gap, ...] = ()
    merged: frozenset[bytes] = frozenset()
    beside: frozenset[bytes] = frozenset()  # new names, for what was at a path that keeps what is there
    # of a conflict on a file that had other names: its whole story, and the changes in the way if that is plain
    lineages: Mapping[bytes, tuple[Chain, tuple[Link, ...]]] = {}
    revived: tuple[Kept, ...] = ()  # comes back, and not as the target has it: a conflict that is kept
    marked: Mapping[bytes, str] = {}  # of those merged: gets conflict markers, and why


class Tools(Value):
    """What the decisions need from the world: contents, and names for actors."""

    read: Read
    make: Make
    look: Callable[[bytes], bytes | None]  # a file as it is now
    whose: Callable[[Link], str]
    is_doubtful: Callable[[Link], bool] = lambda link: False  # may be a taken one's, may be another's
    is_seen: Callable[[bytes], bool] = lambda path: True  # a checkpoint would hold it: what we write must come back
    there: There = lambda path: None  # what is at a path now, changed or not
    is_database: IsDatabase = lambda path, states: False
    is_index: IsDatabase = lambda path, states: False
