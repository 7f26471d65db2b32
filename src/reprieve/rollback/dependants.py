"""Which later changes need what a step did, and what a change can be named by. Pure."""

from __future__ import annotations

from reprieve.model.entry import DIR
from reprieve.rollback.chains import Chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reprieve.rollback.chains import Link, Span
    from reprieve.rollback.decided import Decided


def span_keys(span: Span) -> set[str]:
    """What a span can be named by: the windows that were open, or else the entry that it ends with."""
    if span.windows:
        return {id for ids in span.windows for id in ids}
    return {span.entry.id if span.entry is not None else "now"}


def names(link: Link) -> set[str]:
    """The same and, in windows too, the entry that it ends with: somebody may mean only what changed up to there."""
    return span_keys(link.span) | ({link.span.entry.id} if link.span.entry is not None else set())


def step_keys(link: Link) -> set[str]:
    """The same without the windows around the innermost ones: a step, not all that it is part of."""
    return {ids[0] for ids in link.span.windows} or span_keys(link.span)


def dependants(
    chains: Mapping[bytes, Chain],
    decided: Decided,
    is_taken: Callable[[Link], bool],
    is_clean: Callable[[Chain, Callable[[Link], bool]], bool],
) -> list[tuple[Link, list[bytes]]]:
    """Later changes that need what a step did: the same lines, a path inside a directory that it made."""
    found: dict[frozenset[str], tuple[Link, list[bytes]]] = {}

    def add(link: Link, path: bytes) -> None:
        paths = found.setdefault(frozenset(span_keys(link.span)), (link, []))[1]
        if path not in paths:
            paths.append(path)

    for conflict in decided.conflicts:
        chain, known = decided.lineages.get(conflict.path, (chains.get(conflict.path), ()))
        for link in known or (_in_the_way(chain, is_taken, is_clean) if chain is not None else ()):
            add(link, conflict.path)
    final = {path: wanted for path, wanted, _ in decided.differences}
    doomed = [p for p, w in final.items() if w is None and (now := chains[p].now) is not None and now.kind == DIR]
    for folder in doomed:
        for path, chain in chains.items():
            if path.startswith(folder + b"/") and final.get(path, chain.now) is not None:
                for link in chain.links:
                    if not is_taken(link):
                        add(link, folder)
    return list(found.values())


def _in_the_way(
    chain: Chain, is_taken: Callable[[Link], bool], is_clean: Callable[[Chain, Callable[[Link], bool]], bool]
) -> Iterator[Link]:
    """Links without which the taken ones could be taken out: each that is the first to make it impossible."""
    growing = Chain(chain.path, chain.then)
    gone: set[int] = set()

    def without(link: Link) -> bool:
        return is_taken(link) or id(link) in gone

    for link in chain.links:
        growing.links, growing.now = (*growing.links, link), link.after
        if not is_taken(link) and not is_clean(growing, without):
            gone.add(id(link))
            yield link
