"""Which chains have to be known to decide about a selection of paths. Pure."""

from __future__ import annotations

from reprieve.files.tree import ancestors
from reprieve.model.entry import DIR, Entry
from reprieve.rollback.last_copy import came, went
from reprieve.rollback.repository import repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.rollback.chains import Chain


def needed_chains(chains: Mapping[bytes, Chain], selects: Callable[[bytes], bool]) -> dict[bytes, Chain]:
    """The chains of what is selected, and those without which it can't be decided. No more: each may have to be read.

    What was a directory is needed by what is selected inside it; where bytes came from, by where they are now.
    """
    found = {path for path in chains if selects(path)}
    holders: dict[tuple[int, bytes], list[bytes]] = {}
    for path, chain in chains.items():
        if repository_of(path):
            continue  # one thing: all of it is decided, or nothing
        for link in chain.links:
            for one in filter(None, (came(link), went(link))):
                holders.setdefault((id(link.span), one), []).append(path)
    new = set(found)
    while new:
        keys = {(id(link.span), came(link)) for path in new for link in chains[path].links}
        above = {at for path in new for at in ancestors(path)} & chains.keys()
        new = {path for key in keys for path in holders.get(key, ())}
        new |= {at for at in above if not is_dir(chains[at].now) and was_dir(chains[at])}
        new -= found
        found |= new
    return {path: chain for path, chain in chains.items() if path in found}


def is_dir(entry: Entry | None) -> bool:
    """Whether a directory is there."""
    return entry is not None and entry.kind == DIR


def was_dir(chain: Chain) -> bool:
    """Whether a directory was there before a change."""
    return any(is_dir(link.before) for link in chain.links)
