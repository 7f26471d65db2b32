"""Take some of the changes of one path out and keep the others. Pure but for reading the contents of files.

    links      A: e0 → e1    P: e1 → e2    A: e2 → e3 (now)
    taken      A's
    1. those at the end are simply not there any more: back to e2
    2. the others, newest first, are taken out by a merge: base e1, ours e2, theirs e0

Content, existence and rights are merged apart: a mode set by one and bytes written by the other do not collide.
"""

from __future__ import annotations

from reprieve.files.merge import NotText, merge3
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.value import Value
from reprieve.rollback.chains import Chain, Link, is_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[Entry], bytes]  # the content of a file; raises StoreCorrupted
    Make = Callable[[bytes], Entry]  # an entry for new content; only its kind, size, content and is_chunked count

LARGEST = 1 << 20  # bytes of one side; what is larger is not merged by lines

KEEP, THEIRS, MERGE, BOTH = "keep", "theirs", "merge", "both"


class Outcome(Value):
    """What the path becomes; `conflict` says why that cannot be decided.

    Then `entry` is what is there now or, where one who is taken back removed it, what the others had left.
    """

    entry: Entry | None
    conflict: str = ""
    is_merged: bool = False
    marked: bytes | None = None  # the merge with conflict markers, where lines can be merged at all


class _Clash(Exception):
    def __init__(self, reason: str, marked: bytes | None = None) -> None:
        super().__init__(reason)
        self.marked = marked


def take_out(
    chain: Chain, is_taken: Callable[[Link], bool], *, read: Read, make: Make, whose: Callable[[Link], str]
) -> Outcome:
    """The path without the taken links. `whose` names an actor for people."""
    links = [(link, is_taken(link)) for link in chain.links]
    if not any(taken for _, taken in links):
        return Outcome(chain.now)
    if all(taken for _, taken in links):
        return Outcome(chain.then)
    current = chain.now
    while links and links[-1][1]:
        current = links.pop()[0].before
    is_merged, left = False, current
    stays = next((whose(link) for link, taken in reversed(links) if not taken), "")
    for before, after, by in _groups(links, whose):
        names = (stays.encode(), f"before {by}".encode())
        try:
            merged = _merge(after, current, before, read, make, names, by, stays)
        except _Clash as clash:
            return Outcome(left if chain.now is None else chain.now, str(clash), marked=clash.marked)
        is_merged |= merged is not current and merged != before
        current = merged
    return Outcome(current, is_merged=is_merged)


def _groups(
    links: list[tuple[Link, bool]], whose: Callable[[Link], str]
) -> list[tuple[Entry | None, Entry | None, str]]:
    """(before, after, by) of each run of taken links, newest first."""
    found: list[tuple[Entry | None, Entry | None, str]] = []
    is_open = False
    for link, taken in links:
        if taken and is_open:
            found[-1] = (found[-1][0], link.after, found[-1][2])
        elif taken:
            found.append((link.before, link.after, whose(link)))
        is_open = taken
    return found[::-1]


def _merge(
    base: Entry | None,
    ours: Entry | None,
    theirs: Entry | None,
    read: Read,
    make: Make,
    names: tuple[bytes, bytes],
    by: str,
    stays: str,
) -> Entry | None:
    """Take the step from theirs to base out of ours."""
    if is_same(base, theirs) or is_same(ours, theirs):
        return ours
    if is_same(ours, base):
        return theirs
    if ours is None:
        return None  # deleted by who stays: it stays deleted
    if theirs is None:
        if ours.kind == DIR:
            return ours
        raise _Clash(f"created by {by}, then changed by {stays}", _marked(base, ours, None, read, names))
    if base is None:
        if ours.kind == theirs.kind == DIR or ours.same_bytes_key == theirs.same_bytes_key:
            return ours
        raise _Clash(f"deleted by {by}, then made again by {stays}", _marked(None, ours, theirs, read, names))
    if ours.gap or base.gap or theirs.gap:
        raise _Clash(f"changed by {by} and by {stays}, and its content is not protected")
    if not ours.kind == base.kind == theirs.kind:
        raise _Clash(f"changed by {by} and by {stays}, and of another type now")
    return _merge_rights(base, _merge_bytes(base, ours, theirs, read, make, names, by, stays), ours, theirs)


def _merge_bytes(
    base: Entry,
    ours: Entry,
    theirs: Entry,
    read: Read,
    make: Make,
    names: tuple[bytes, bytes],
    by: str,
    stays: str,
) -> Entry:
    keys = base.same_bytes_key, ours.same_bytes_key, theirs.same_bytes_key
    if keys[0] == keys[2] or keys[1] == keys[2]:
        return ours
    if keys[0] == keys[1]:
        return theirs
    if ours.kind != FILE:
        raise _Clash(f"changed by {by} and by {stays}")
    if max(base.size, ours.size, theirs.size) > LARGEST:
        raise _Clash(f"changed by {by} and by {stays}, and too large to be merged by lines")
    try:
        merged = merge3(read(base), read(ours), read(theirs), labels=names)
    except NotText:
        raise _Clash(f"changed by {by} and by {stays}, and not a text that could be merged") from None
    if len(merged.data) > LARGEST:
        raise _Clash(f"changed by {by} and by {stays}, and too large to be merged by lines")
    if merged.conflicts:
        raise _Clash(f"changed by {by} and by {stays} in the same lines", merged.data)
    made = make(merged.data)
    return ours.replace(size=made.size, content=made.content, is_chunked=made.is_chunked)


def _merge_rights(base: Entry, merged: Entry, ours: Entry, theirs: Entry) -> Entry:
    """Owner, mode and attributes: ours, where theirs were not changed on the way to base or ours were since."""
    changes: dict[str, object] = {}
    for name in ("mode", "uid", "gid", "xattrs"):
        was, is_now, wanted = (getattr(entry, name) for entry in (base, ours, theirs))
        changes[name] = wanted if was == is_now else is_now
    return merged.replace(**changes)


def _marked(
    base: Entry | None, ours: Entry, theirs: Entry | None, read: Read, names: tuple[bytes, bytes]
) -> bytes | None:
    """The merge with markers where one side is not there; None where there are no lines."""
    texts = []
    for side in (base, ours, theirs):
        if side is None:
            texts.append(b"")
        elif side.kind != FILE or side.gap or side.size > LARGEST:
            return None
        else:
            texts.append(read(side))
    try:
        data = merge3(*texts, labels=names).data
    except NotText:
        return None
    return data if len(data) <= LARGEST else None
