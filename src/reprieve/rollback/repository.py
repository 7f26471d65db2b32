"""Decide what becomes of a git repository's own files, as one thing. Pure but for reading contents.

A repository is whole or broken: a ref that stays needs every object behind it, whoever wrote them. So `.git` is judged
together, by whose changes are in it:

    only taken ones             everything back exactly: HEAD, refs, index, stash, reflogs, objects
    only others                 everything stays
    first others, then taken    everything as the others had left it
    both                        no object goes; a ref, HEAD or index that both moved stays and is named
    commits that were pushed    history stays and is named, unless that is asked for: others may have it by now
"""

from __future__ import annotations

from reprieve.files.gitindex import essence
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reprieve.rollback.chains import Chain, Link
    from reprieve.rollback.takeout import Read

_LARGEST = 64 << 20
_NOTES = (b"COMMIT_EDITMSG", b"FETCH_HEAD", b"ORIG_HEAD", b"gc.log")  # git writes them down in passing; nothing follows


class Repository(Value):
    """What its paths become, and what of it could not be taken back."""

    wanted: Mapping[bytes, Entry | None]
    left: tuple[Gap, ...] = ()
    entangled: tuple[bytes, ...] = ()  # paths that both sides moved


def repository_of(path: bytes) -> bytes:
    """The outermost `.git` that path is, or is in; b"" if it is in none."""
    parts = path.split(b"/")
    return b"/".join(parts[: parts.index(b".git") + 1]) if b".git" in parts else b""


def repositories(chains: Mapping[bytes, Chain]) -> dict[bytes, list[Chain]]:
    """The chains in each repository. A `.git` that is a mere file points elsewhere and is a file like others."""
    found: dict[bytes, list[Chain]] = {}
    for path, chain in chains.items():
        at = repository_of(path)
        if at and (path != at or any(e is not None and e.kind == DIR for e in (chain.then, chain.now))):
            found.setdefault(at, []).append(chain)
    return found


def decide(
    at: bytes,
    chains: list[Chain],
    is_taken: Callable[[Link], bool],
    *,
    read: Read,
    look: Callable[[bytes], bytes | None],
    take_pushed: bool,
) -> Repository:
    """What the repository becomes without the taken changes. `look` reads a file as it is now."""
    now = {chain.path: chain.now for chain in chains}
    links = {
        chain.path: [link for link in chain.links if not is_refreshed(chain.path, link.before, link.after, read)]
        for chain in chains
    }
    if not any(links.values()):
        # only refreshed: by one who is taken back, it goes back too; else it is as good as it was
        every = [link for chain in chains for link in chain.links]
        return Repository({c.path: c.then for c in chains} if all(map(is_taken, every)) else now)
    if not any(is_taken(link) for some in links.values() for link in some):
        return Repository(now)
    pushed = [] if take_pushed else _pushed(at, chains, read)
    if pushed:
        names = ", ".join(sorted(pushed))
        return Repository(now, (Gap(at, f"commits were pushed to {names} since; git's history is left as it is"),))
    if all(is_taken(link) for some in links.values() for link in some):
        return Repository({chain.path: chain.then for chain in chains})
    if _are_last(links, is_taken):
        return Repository({chain.path: _before_taken(chain, links[chain.path], is_taken) for chain in chains})
    return _both(at, chains, links, is_taken, look(at + b"/HEAD") or b"")


def _are_last(links: Mapping[bytes, list[Link]], is_taken: Callable[[Link], bool]) -> bool:
    """Whether all taken changes came after all others."""
    every = [link for some in links.values() for link in some]
    return max(map(_when, (k for k in every if not is_taken(k)))) < min(map(_when, (k for k in every if is_taken(k))))


def _when(link: Link) -> int:
    return link.span.entry.seq if link.span.entry is not None else 1 << 62


def _before_taken(chain: Chain, links: list[Link], is_taken: Callable[[Link], bool]) -> Entry | None:
    return next((link.before for link in links if is_taken(link)), chain.now)


def _both(
    at: bytes, chains: list[Chain], links: Mapping[bytes, list[Link]], is_taken: Callable[[Link], bool], head: bytes
) -> Repository:
    wanted: dict[bytes, Entry | None] = {}
    mixed: list[bytes] = []
    for chain in chains:
        taken = [is_taken(link) for link in links[chain.path]]
        if _is_object(at, chain.path):
            wanted[chain.path] = chain.now if chain.now is not None else chain.then
        elif not any(taken):
            wanted[chain.path] = chain.now
        elif all(taken):
            wanted[chain.path] = chain.then
        else:
            wanted[chain.path] = chain.now
            if not _is_log(at, chain.path) and not _is_dir(chain) and chain.path[len(at) + 1 :] not in _NOTES:
                mixed.append(chain.path)
    by_path = {chain.path: chain for chain in chains}
    if mixed:
        # what is checked out stays as one: HEAD, the branch it names, the index, and what is under way
        branch = head[5:].strip() if head.startswith(b"ref: ") else b""
        for path in wanted:
            inner = path[len(at) + 1 :]
            if b"/" not in inner or inner == branch or _is_log(at, path):
                wanted[path] = by_path[path].now
    _keep_parents(wanted, by_path)
    names = ", ".join(path[len(at) + 1 :].decode("utf-8", "replace") for path in sorted(mixed)[:5])
    left = (Gap(at, f"moved by both sides since, and left as it is: {names}"),) if mixed else ()
    return Repository(wanted, left, tuple(sorted(mixed)))


def _keep_parents(wanted: dict[bytes, Entry | None], chains: Mapping[bytes, Chain]) -> None:
    """A directory stays, or comes back, as long as something in it does."""
    for path, entry in list(wanted.items()):
        while entry is not None and (path := path.rpartition(b"/")[0]) in wanted:
            if wanted[path] is None:
                chain = chains[path]
                wanted[path] = chain.now if chain.now is not None else chain.then


def is_refreshed(path: bytes, before: Entry | None, after: Entry | None, read: Read) -> bool:
    """The index written anew with the same content, as `git status` does."""
    if not path.endswith(b"/index") or not repository_of(path) or before is None or after is None:
        return False
    if not before.kind == after.kind == FILE or before.gap or after.gap or max(before.size, after.size) > _LARGEST:
        return False
    was = essence(read(before))
    return was is not None and was == essence(read(after))


def _pushed(at: bytes, chains: Iterable[Chain], read: Read) -> set[str]:
    """Remote branches that a push has moved since, by git's own log of them."""
    found = set()
    prefix = at + b"/logs/refs/remotes/"
    for chain in chains:
        if not chain.path.startswith(prefix) or chain.now is None or chain.now.kind != FILE or chain.now.gap:
            continue
        then = read(chain.then) if chain.then is not None and chain.then.kind == FILE and not chain.then.gap else b""
        text = read(chain.now)
        new = text[len(then) :] if text.startswith(then) else text
        if any(line.endswith(b"\tupdate by push") for line in new.split(b"\n")):
            found.add(chain.path[len(prefix) :].decode("utf-8", "replace"))
    return found


def _is_object(at: bytes, path: bytes) -> bool:
    return b"objects" in path[len(at) + 1 :].split(b"/")


def _is_log(at: bytes, path: bytes) -> bool:
    return b"logs" in path[len(at) + 1 :].split(b"/")


def _is_dir(chain: Chain) -> bool:
    return chain.now is not None and chain.now.kind == DIR
