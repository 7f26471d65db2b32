"""What becomes of files that have no place to go back to. Pure.

A name that holds the last copy of what another one does not get back must not lose it:

agent   mv -f lib/f src/c         lib/f: X → –      src/c: C → X
person  puts a file at lib        lib/f can't come back: src/c must keep X, and not become C again
"""

from __future__ import annotations

import os

from reprieve.model.entry import FILE, Entry
from reprieve.rollback.chains import is_same
from reprieve.rollback.repository import repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from reprieve.rollback.chains import Chain, Link
    from reprieve.rollback.takeout import Outcome

    Held = Iterator[tuple[bytes, bytes]]  # (name that holds it, name that it was at)


def content(entry: Entry | None) -> bytes:
    """The content of a file, b"" if there is none or nobody knows."""
    return entry.content if entry is not None and entry.kind == FILE and entry.size and not entry.gap else b""


def came(link: Link) -> bytes:
    """The content of a file that is new at this path, b"" if there is none."""
    return content(link.after) if content(link.after) != content(link.before) else b""


def went(link: Link) -> bytes:
    """The content of a file that is no longer at this path, b"" if there is none."""
    return content(link.before) if content(link.after) != content(link.before) else b""


def displaced(
    chains: Mapping[bytes, Chain], outcomes: Mapping[bytes, Outcome], births: Mapping[bytes, Link]
) -> list[tuple[bytes, bytes]]:
    """Files whose bytes went to a name that goes while something else took their own: copied, or moved?

    Nobody can tell. `births`: how a file that had other names came to be.
    """
    going: dict[tuple[int, bytes], bytes] = {}
    for path, outcome in outcomes.items():
        chain = chains[path]
        if outcome.entry is not None or chain.now is None or not chain.links or outcome.conflict:
            continue
        born = births.get(path) or chain.links[0]
        if born.before is None and born.after is not None and born.after.kind == FILE and born.after.size:
            going[id(born.span), born.after.content] = path
    found = []
    for source, chain in chains.items() if going else ():
        if (not outcomes[source].conflict and outcomes[source].entry is not None) or repository_of(source):
            continue
        for link in chain.links:
            before, after = link.before, link.after
            if before is None or after is None or before.content == after.content:
                continue
            holder = going.get((id(link.span), before.content))
            if holder is not None:
                found.append((holder, source))
    return found


def stranded(
    chains: Mapping[bytes, Chain],
    is_moved: Callable[[bytes], bool],
    is_left_out: Callable[[bytes], bool],
    staying: Collection[bytes],
) -> Held:
    """Names that are to hold something else, with the name that does not get back what they hold.

    `staying`: contents that are somewhere in the end.
    """
    if not any(map(is_left_out, chains)):
        return  # everything has its place, as mostly
    leaving: dict[tuple[int, bytes], list[bytes]] = {}
    for path, chain in chains.items():
        for link in chain.links if not repository_of(path) else ():
            leaving.setdefault((id(link.span), went(link)), []).append(path)
    for path, chain in chains.items():
        if repository_of(path) or not is_moved(path):
            continue
        links = [link for link in chain.links if came(link) and came(link) not in staying]
        sources: dict[bytes, None] = {}
        while links:
            link = links.pop()
            new = [at for at in leaving.get((id(link.span), came(link)), ()) if at not in sources and at != path]
            sources.update(dict.fromkeys(new))
            links += [link for at in new for link in chains[at].links if came(link)]
        lost = next(filter(is_left_out, sources), None)
        if lost is not None:
            yield path, lost


def newborn(chains: Mapping[bytes, Chain], births: Mapping[bytes, Link]) -> dict[int, list[bytes]]:
    """The files that are new with each span, by its identity; not those that are known to come from elsewhere."""
    found: dict[int, list[bytes]] = {}
    for path, chain in chains.items():
        for link in chain.links if path not in births and not repository_of(path) else ():
            if link.before is None and content(link.after):
                found.setdefault(id(link.span), []).append(path)
    return found


def how_to_have(chain: Chain, wanted: Entry, *, instead: bytes, target: str) -> str:
    """What a person types who wants a file back where its folder is something else now; "" if nobody knows."""
    from shlex import quote

    states = [
        (chain.then, target),
        *((link.after, link.span.entry.id if link.span.entry else "") for link in chain.links),
    ]
    at = next((id for entry, id in reversed(states) if id and is_same(entry, wanted)), "")
    if not at:
        return ""
    path, other = quote(os.fsdecode(chain.path)), quote(os.fsdecode(instead))
    return f"; to have it back: move {other} away, then reprieve revert {path} --to {at}"
