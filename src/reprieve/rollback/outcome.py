"""What a move came to: the tree to record, and what is not done after all.

What was noted while things moved may be overtaken: somebody exchanges a directory for a moment, and what was done in
it, or was not there to be removed, is elsewhere. So the notes are compared with the disk once more, what does not hold
is a conflict, and what is recorded is always the step from one whole tree to another.
"""

from __future__ import annotations

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath, is_listed
from reprieve.model.plan import Conflicted
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.store.protocols import Buffer

_FEW = 2000  # moves; for more a merge is faster
_VANISHED = "vanished while the rollback ran"
_CAME_BACK = "was made again while the rollback ran"
_REPLACED = "its directory was replaced while the rollback ran"


class Outcome(Value):
    """What is true now, as far as anybody can say."""

    index: bytearray  # the tree after the move; every row that moved is racy, so the next scan compares content
    done: tree.Delta  # from the tree before to this one
    conflicts: tuple[Conflicted, ...]
    # where `index` is still the tree before the move: rows that are to be set in it, and their numbers there
    rows: bytes | bytearray = b""
    places: tuple[int, ...] = ()

    def after(self) -> bytearray:
        """The tree after the move. The one before it may be gone then."""
        if self.places:
            tree.put_rows(self.index, self.rows, self.places)
        return self.index


def judge(root_fd: int, done: tree.Delta, index: Buffer, *, in_place: bool = False) -> Outcome:
    """Compare what was noted as done, starting from `index`, with the disk. Raises OSError.

    `in_place`: the caller asks for the tree by `Outcome.after`, when it needs the one before no longer.
    """
    tree.trim(index, done)
    rows = tree.pack((path, after, tree.NO_STAT, 0) for path, _, after in done if after is not None)
    gone = [path for path, _, after in done if after is None]
    untrue = {native.get(rows, row)[0]: _VANISHED for row in native.fill_stats(root_fd, rows)}
    untrue.update(dict.fromkeys(_still_there(root_fd, gone), _CAME_BACK))
    is_same = not untrue and all(before and after for _, before, after in done)  # nothing came or went
    if in_place and is_same and len(done) < _FEW and isinstance(index, bytearray) and (at := tree.places(index, rows)):
        return Outcome(index, done, (), rows, tuple(at))
    while True:
        if untrue:
            rows = native.merge(rows, tree.pack([]), list(untrue), {}, bytes(16))
            gone = [path for path in gone if path not in untrue]
        try:
            new = tree.advance(index, rows, gone)
            break
        except tree.Torn as torn:
            untrue.update(dict.fromkeys(torn.orphans, _REPLACED))
    conflicts: list[Conflicted] = []
    if untrue:
        true = {*gone, *(path for path, _ in tree.entries(rows))}
        for path, _, after in done:
            if path not in true:
                conflicts.append(Conflicted(path, untrue.get(path, _REPLACED), wanted=after))
        done = [move for move in done if move[0] in true]
    return Outcome(new, tree.explained(done, index, new), tuple(conflicts))


def _still_there(root_fd: int, paths: list[bytes]) -> list[bytes]:
    found = [path for path, st in zip(paths, native.stat_many(root_fd, paths), strict=True) if st is not None]
    if not found:
        return []
    beneath = Beneath(root_fd)
    try:
        # where `a` and `A` are one name, what was renamed answers to the old name too
        return [path for path in found if beneath.lstat(path) is not None and is_listed(*beneath.at(path))]
    finally:
        beneath.close()
