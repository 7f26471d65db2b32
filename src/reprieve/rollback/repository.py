"""Decide what becomes of a git repository's own files, as one thing. Pure but for reading contents.

A repository is whole or broken: a ref that stays needs every object behind it, whoever wrote them. So `.git` is judged
together, by whose changes are in it:

    only taken ones             everything back exactly: HEAD, refs, index, stash, reflogs, objects
    only others                 everything stays
    first others, then taken    everything as the others had left it
    both                        no object goes; a ref, HEAD or index that both moved stays and is named, or goes back
                                with all that belongs to it where the caller chose that
    commits that were pushed    history stays and is named, unless that is asked for: others may have it by now
"""

from __future__ import annotations

from reprieve.files.gitindex import essence
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.value import Value
from reprieve.rollback.takeout import THEIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reprieve.model.plan import Choices
    from reprieve.rollback.chains import Chain, Link
    from reprieve.rollback.takeout import Read

PUSHED = "commits were pushed to"  # what the reason of a gap begins with

_LARGEST = 64 << 20
_NOTES = (b"COMMIT_EDITMSG", b"FETCH_HEAD", b"ORIG_HEAD", b"gc.log")  # git writes them down in passing; nothing follows
_STASH = (b"refs/stash", b"logs/refs/stash")
_UNDER_WAY = (b"MERGE_", b"AUTO_MERGE", b"CHERRY_PICK_HEAD", b"REVERT_HEAD", b"rebase-", b"sequencer")
_MANY = (b"packed-refs", b"reftable", b"modules", b"worktrees")


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
    choices: Choices,
) -> Repository:
    """What the repository becomes without the taken changes. `look` reads a file as it is now.

    Where one step is taken out and the caller chose `theirs`, what both sides moved goes back to what it was, if it can
    do so without what only others moved.
    """
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
    pushed = set() if choices.take_pushed else _pushed(at, chains, read) - choices.unpushed
    if pushed:
        how = "" if choices.is_strict else "; rollback --pushed takes it back all the same"
        reason = f"{PUSHED} {', '.join(sorted(pushed))} since; git's history is left as it is{how}"
        return Repository(now, (Gap(at, reason),))
    if all(is_taken(link) for some in links.values() for link in some):
        return Repository({chain.path: chain.then for chain in chains})
    if _are_last(links, is_taken):
        return Repository({chain.path: _before_taken(chain, links[chain.path], is_taken) for chain in chains})
    both = _Both(at, chains, links, is_taken)
    if choices.is_strict and choices.on_conflict == THEIRS and both.can_give_way(look(at + b"/HEAD") or b"", read):
        return both.gone_back()
    return both.as_it_is(look(at + b"/HEAD") or b"")


def _are_last(links: Mapping[bytes, list[Link]], is_taken: Callable[[Link], bool]) -> bool:
    """Whether all taken changes came after all others."""
    every = [link for some in links.values() for link in some]
    return max(map(_when, (k for k in every if not is_taken(k)))) < min(map(_when, (k for k in every if is_taken(k))))


def _when(link: Link) -> int:
    return link.span.entry.seq if link.span.entry is not None else 1 << 62


def _before_taken(chain: Chain, links: list[Link], is_taken: Callable[[Link], bool]) -> Entry | None:
    return next((link.before for link in links if is_taken(link)), chain.now)


class _Both:
    """A repository that both sides changed: what goes, what stays, and what both moved."""

    def __init__(
        self, at: bytes, chains: list[Chain], links: Mapping[bytes, list[Link]], is_taken: Callable[[Link], bool]
    ) -> None:
        self.at = at
        self.chains = {chain.path: chain for chain in chains}
        self.wanted: dict[bytes, Entry | None] = {}
        self.mixed: list[bytes] = []
        stash = [at + b"/" + inner for inner in _STASH]
        # the stash is a ref and its log: what is in the one is found by the other
        together = {path: [link for part in stash for link in links.get(part, ())] for path in stash}
        self.taken = {path: [*map(is_taken, together.get(path, links[path]))] for path in self.chains}
        for path, chain in self.chains.items():
            taken = self.taken[path]
            if self._is_object(path):
                self.wanted[path] = chain.now if chain.now is not None else chain.then
            elif any(taken) and all(taken):
                self.wanted[path] = chain.then
            else:
                self.wanted[path] = chain.now
                # a remote's refs tell what is there; whoever fetches moves them
                is_unnamed = (
                    self._is_history(path)
                    or self._inner(path).startswith(b"refs/remotes/")
                    or (path == stash[1] and stash[0] in self.chains)
                )
                if any(taken) and not is_unnamed and not _is_dir(chain) and self._inner(path) not in _NOTES:
                    self.mixed.append(path)

    def as_it_is(self, head: bytes) -> Repository:
        """What both moved stays, and what is checked out with it: HEAD, its branch, the index, what is under way."""
        if self.mixed:
            branch = _branch(head)
            for path, chain in self.chains.items():
                inner = self._inner(path)
                if b"/" not in inner or inner == branch or inner.startswith(_UNDER_WAY) or self._is_history(path):
                    self.wanted[path] = chain.now
        names = ", ".join(self._inner(path).decode("utf-8", "replace") for path in sorted(self.mixed)[:5])
        left = (Gap(self.at, f"moved by both sides since, and left as it is: {names}"),) if self.mixed else ()
        return self._made(left, tuple(sorted(self.mixed)))

    def can_give_way(self, head: bytes, read: Read) -> bool:
        """Whether what both moved can go back without anything that only others moved.

        HEAD, the branch that it names and the index go together or not at all, and so does a merge that is under way.
        Packed refs are of many branches, and another repository's files inside of this one make sense only together.
        """
        chain = self.chains.get(self.at + b"/HEAD")
        then = chain.then if chain is not None else None
        branch = _branch(read(then) if then is not None and then.kind == FILE and not then.gap else head)
        for path, taken in self.taken.items():
            inner = self._inner(path)
            if not taken or _is_dir(self.chains[path]):
                continue
            if inner.partition(b"/")[0] in _MANY:
                return False
            is_checked_out = inner in (branch, b"HEAD", b"index") or inner.startswith(_UNDER_WAY)
            if is_checked_out and not any(taken):
                return False
        return True

    def gone_back(self) -> Repository:
        """What both moved is as it was before. Logs stay, so that git still finds the commits of the others.

        But the stash is its log: what others put there since goes with it, and a redo brings it back.
        """
        for path, chain in self.chains.items():
            if path in self.mixed or (self._inner(path) in _STASH and any(self.taken[path])):
                self.wanted[path] = chain.then
            elif self._is_history(path):
                self.wanted[path] = chain.now
        return self._made()

    def _made(self, left: tuple[Gap, ...] = (), entangled: tuple[bytes, ...] = ()) -> Repository:
        _keep_parents(self.wanted, self.chains)
        return Repository(self.wanted, left, entangled)

    def _inner(self, path: bytes) -> bytes:
        return path[len(self.at) + 1 :]

    def _is_object(self, path: bytes) -> bool:
        return b"objects" in self._inner(path).split(b"/")

    def _is_log(self, path: bytes) -> bool:
        return b"logs" in self._inner(path).split(b"/")

    def _is_history(self, path: bytes) -> bool:
        """A log that only tells what happened; that of the stash holds what is in it."""
        return self._is_log(path) and self._inner(path) not in _STASH


def _branch(head: bytes) -> bytes:
    return head[5:].strip() if head.startswith(b"ref: ") else b""


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
    """Remote branches that a push has moved since, by git's own log of them, and none has moved back."""
    found = set()
    prefix = at + b"/logs/refs/remotes/"
    for chain in chains:
        if not chain.path.startswith(prefix) or chain.now is None or chain.now.kind != FILE or chain.now.gap:
            continue
        then = read(chain.then) if chain.then is not None and chain.then.kind == FILE and not chain.then.gap else b""
        text = read(chain.now)
        if _is_pushed(text[len(then) :] if text.startswith(then) else text):
            found.add(chain.path[len(prefix) :].decode("utf-8", "replace"))
    return found


def _is_pushed(log: bytes) -> bool:
    """Whether pushes moved a branch on, by lines of its log: OLD NEW WHO WHEN <tab> WHAT."""
    base, is_pushed = b"", False
    for line in log.split(b"\n"):
        commits, _, what = line.partition(b"\t")
        old, new, *_ = (*commits.split(b" ", 2), b"", b"")
        if what == b"update by push":
            base = base or old
            is_pushed = new != base
        elif not is_pushed:
            base = new  # fetched: that is what the remote has
    return is_pushed


def _is_dir(chain: Chain) -> bool:
    return chain.now is not None and chain.now.kind == DIR
