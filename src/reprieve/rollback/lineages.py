"""Follow files from name to name, so that what was done under one is taken out under the other. Pure.

    a ──agent edits──▶ a ──person moves──▶ b ──agent moves──▶ c ──person edits──▶ c
    without the agent: at b, where the person put it, with the person's edit and without the agent's

A file was moved if one span holds both ends, the bytes are the same, and no other file of that span has them: guessing
by likeness would sometimes merge two files that have nothing to do with each other.
"""

from __future__ import annotations

from reprieve.model.entry import FILE
from reprieve.model.value import Value
from reprieve.rollback.chains import Chain, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    At = tuple[bytes, int]  # path, and number of the link in its chain


class Lineage(Value):
    """One file that had several names."""

    places: tuple[bytes, ...]  # its names, oldest first
    starts: tuple[int, ...]  # number of the link with which it begins in the chain of each name
    ends: tuple[int, ...]  # and of that with which it leaves; of the newest name: the last one
    moves: tuple[Link, ...]  # how it went from each to the next
    chain: Chain  # what happened to it, whatever it was called; its path is the newest name
    links: tuple[Link, ...]  # the same with the moves, in order

    def home(self, is_taken: Callable[[Link], bool]) -> int:
        """Number of the name that it has without the taken moves: one that somebody else followed up stays."""
        at = len(self.moves)
        while at and is_taken(self.moves[at - 1]):
            at -= 1
        return at

    def after_a_taken_move(self, is_taken: Callable[[Link], bool]) -> tuple[Link, ...]:
        """What others did to it since it was first moved by one who is taken back."""
        moves = {id(move) for move in self.moves if is_taken(move)}
        first = next((n for n, link in enumerate(self.links) if id(link) in moves), len(self.links))
        return tuple(link for link in self.links[first:] if not is_taken(link))


def lineages(chains: Mapping[bytes, Chain], leave_out: Collection[bytes]) -> Iterator[Lineage]:
    """Every file that had more than one name, and that is the last one known under its newest."""
    came_from = _moves(chains, leave_out)
    if not came_from:
        return  # nothing was moved, as mostly
    went = set(came_from.values())
    for path, chain in chains.items():
        last = len(chain.links) - 1
        if last < 0 or (path, last) in went:
            continue
        at: At = (path, last)
        places, starts, ends = [path], list[int](), [last]
        moves, links = list[Link](), list[Link]()
        while True:
            here = chains[at[0]].links
            number = at[1]
            while number > 0 and here[number].before is not None:
                number -= 1
            part = list(here[number : at[1] + 1])
            starts.insert(0, number)
            source = came_from.get((at[0], number))
            if source is None:
                links = part + links
                then = part[0].before
                break
            left = chains[source[0]].links[source[1]]
            moved = part[0].replace(before=left.before)
            moves.insert(0, moved)
            links = [moved, *part[1:], *links]
            places.insert(0, source[0])
            ends.insert(0, source[1])
            if source[1] == 0:
                starts.insert(0, 0)
                then = left.before
                break
            at = (source[0], source[1] - 1)
        if moves:
            whole = Chain(path, then)
            for link in links:
                whole.add(link)
            yield Lineage(tuple(places), tuple(starts), tuple(ends), tuple(moves), whole, tuple(links))


def _moves(chains: Mapping[bytes, Chain], leave_out: Collection[bytes]) -> dict[At, At]:
    """Where a file arrived → where it left from."""
    gone: dict[tuple[int, bytes], list[At]] = {}
    come: dict[tuple[int, bytes], list[At]] = {}
    for path, chain in chains.items():
        if path in leave_out:
            continue
        for number, link in enumerate(chain.links):
            before, after = link.before, link.after
            if before is not None and after is not None:
                continue
            if after is None and before is not None and before.kind == FILE and before.size and not before.gap:
                gone.setdefault((id(link.span), before.content), []).append((path, number))
            if before is None and after is not None and after.kind == FILE and after.size and not after.gap:
                come.setdefault((id(link.span), after.content), []).append((path, number))
    return {
        come[key][0]: places[0]
        for key, places in gone.items()
        if len(places) == 1 and len(come.get(key, ())) == 1 and come[key][0][0] != places[0][0]
    }
