"""Decide what every path becomes when some changes are taken out and the others stay. Pure but for reading contents.

chains ─▶ repositories as one thing each ─▶ what is excluded now ─▶ databases as one thing each
      ─▶ renames followed ─▶ path by path (takeout)
      ─▶ what cannot stand: bytes with no other place, parents ─▶ conflicts settled as the caller chose
      ─▶ differences, kept, conflicts for `make_plan`
"""

from __future__ import annotations

import os

from reprieve.files.databases import index_of, parts_of
from reprieve.files.tree import ancestors, parent
from reprieve.model.change import BY_SETTINGS, Gap, classify
from reprieve.model.entry import DIR, FILE, SYMLINK, Entry
from reprieve.model.plan import Choices, Conflicted, Kept
from reprieve.rollback import repository
from reprieve.rollback.chains import Chain, Link, is_same
from reprieve.rollback.databases import find_parts, take_out_whole, with_rights
from reprieve.rollback.decided import Decided, Tools
from reprieve.rollback.last_copy import came, content, displaced, how_to_have, newborn, stranded, went
from reprieve.rollback.lineages import Lineage, lineages
from reprieve.rollback.needed import is_dir, needed_chains
from reprieve.rollback.takeout import BOTH, KEEP, MERGE, THEIRS, Outcome, take_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def decide(
    chains: Mapping[bytes, Chain],
    is_taken: Callable[[Link], bool],
    *,
    selects: Callable[[bytes], bool] | None,
    choices: Choices,
    tools: Tools,
    target: str,
) -> Decided:
    """What every selected path becomes without the taken links."""
    work = _Work(chains, is_taken, selects, choices, tools, target)
    work.repositories()
    work.hidden()
    work.databases()
    work.renames()
    work.paths()
    work.displaced()
    work.unselected()
    work.parents()
    work.stranded()
    work.elsewhere()
    found = work.settle()
    if selects is not None:
        found = found.replace(
            conflicts=tuple(c for c in found.conflicts if selects(c.path)),
            kept=tuple(k for k in found.kept if selects(k.path)),
        )
    return found


class _Work:
    def __init__(
        self,
        chains: Mapping[bytes, Chain],
        is_taken: Callable[[Link], bool],
        selects: Callable[[bytes], bool] | None,
        choices: Choices,
        tools: Tools,
        target: str,
    ) -> None:
        self.known = chains  # also what is not selected
        self.chains = chains if selects is None else needed_chains(chains, selects)
        self.selects = selects or (lambda path: True)
        self.is_taken, self.choices, self.tools, self.target = is_taken, choices, tools, target
        self.homeless: dict[bytes, str] = {}  # should come back, and has no directory to be in: how to have it
        self.beside: set[bytes] = set()
        self.firm: set[bytes] = set()  # of git, and cannot go back without what only others moved
        self.outcomes: dict[bytes, Outcome] = {}
        self.left: list[Gap] = []
        self.revived: list[Kept] = []
        self.marked: dict[bytes, str] = {}
        self.staying: set[bytes] = set()  # directories with something in them that stays
        self.reasons: dict[bytes, str] = {}  # why a path stays, where that is not who changed it
        self.births: dict[bytes, Link] = {}  # how a file that had other names came to be
        self.homes: dict[bytes, bytes] = {}  # old name that a file goes back to → where it is now
        self.lineages: dict[bytes, tuple[Chain, tuple[Link, ...]]] = {}
        self.parts: dict[bytes, bytes] = {}  # of databases: path → the database

    def repositories(self) -> None:
        for at, some in repository.repositories(self.chains).items():
            tools, choices = self.tools, self.choices
            found = repository.decide(at, some, self.is_taken, read=tools.read, look=tools.look, choices=choices)
            self.left += found.left
            for path, entry in found.wanted.items():
                self.outcomes[path] = Outcome(entry)
            if self.choices.is_strict:
                for path in found.entangled:
                    self.outcomes[path] = Outcome(self.chains[path].now, "moved in git's history since")
                    self.firm.add(path)

    def hidden(self) -> None:
        """What settings leave out now: nobody changed it by that. `make_plan` leaves it alone and names it."""
        now = {path: chain.now for path, chain in self.chains.items()}
        tops = {path for path, entry in now.items() if entry is not None and entry.gap.startswith(BY_SETTINGS)}
        for path, chain in self.chains.items() if tops else ():
            top = next((at for at in (path, *ancestors(path)) if at in tops), None)
            if top is None:
                continue
            if any(self.is_taken(link) for link in chain.links):
                self.outcomes[path] = Outcome(chain.then)
                self.outcomes[top] = Outcome(self.chains[top].then)
            else:
                self.outcomes.setdefault(path, Outcome(chain.now))

    def databases(self) -> None:
        """All parts of a database are of one state; the index of its log is nobody's change, and not decided about."""
        there, is_database = self.tools.there, self.tools.is_database
        is_index = self.tools.is_index
        self.parts = find_parts(self.chains, there=there, is_database=is_database, is_index=is_index)
        if not self.parts:
            return
        indexes = {path for path, database in self.parts.items() if path == index_of(database)}
        self.chains = {path: chain for path, chain in self.chains.items() if path not in indexes}
        for database in dict.fromkeys(self.parts.values()):
            if index_of(database) in indexes:
                self.outcomes.pop(index_of(database), None)
            paths = parts_of(database)
            has_logs = any(path in self.chains for path in paths[1:])
            if not has_logs or any(path in self.outcomes for path in paths):
                continue
            chains = [self.chains.get(path) or Chain(path, there(path)) for path in paths]
            outcomes, others = take_out_whole(
                chains,
                self.is_taken,
                read=self.tools.read,
                is_doubtful=self.tools.is_doubtful,
                whose=self.tools.whose,
                is_renamed=self._is_renamed,
            )
            for chain, outcome in zip(chains, outcomes, strict=True):
                if chain.path not in self.chains and chain.now is None:
                    continue
                self.chains[chain.path] = chain
                self.parts[chain.path] = database
                self.outcomes[chain.path] = with_rights(outcome, self._take_out(chain))
                if others:
                    self.lineages[chain.path] = chain, others

    def _is_renamed(self, gone: Link) -> bool:
        """Whether the file that this link took away came up under another name."""
        return any(
            link.span is gone.span and link.before is None and content(link.after) == content(gone.before) != b""
            for chain in self.chains.values()
            for link in chain.links
        )

    def renames(self) -> None:
        """Files that had several names: what was done under one is taken out under the other."""
        for file in lineages(self.chains, self.outcomes):
            taken = [self.is_taken(link) for link in file.links]
            self.births[file.places[-1]] = file.links[0]
            if not any(taken) or file.places[-1] in self.outcomes:
                continue
            at, newest = file.home(self.is_taken), file.places[-1]
            home = file.places[at]
            is_there = home != newest and self.chains[newest].now is not None
            if is_there and (home in self.outcomes or not self._is_free(file, at)):
                reason = f"moved from {os.fsdecode(home)}, where something else is now"
                self.outcomes[newest] = Outcome(self.chains[newest].now, reason)
                self.lineages[newest] = file.chain, self._others(self.chains[home].links[file.ends[at] + 1 :])
            elif any(place in self.outcomes for place in file.places):
                continue
            elif not all(taken):
                self._renamed(file)
            elif home != newest and file.ends[at] + 1 < len(self.chains[home].links):
                if self._is_free(file, at):  # else it is a name that one deleted and another made again, as any other
                    self._settle_in(file, self._take_out(file.chain), at)
            elif is_there:
                self.homes[home] = newest
                self.reasons[newest] = f"moved from {os.fsdecode(home)}, which it can't go back to"

    def _others(self, links: Iterable[Link]) -> tuple[Link, ...]:
        return tuple(link for link in links if not self.is_taken(link))

    def _is_free(self, file: Lineage, at: int) -> bool:
        """Whether what came to one of its old names after it had left is gone again, or will go."""
        chain = self.chains[file.places[at]]
        later = Chain(chain.path, None)
        for link in chain.links[file.ends[at] + 1 :]:
            later.add(link)
        found = self._take_out(later)
        return not found.conflict and found.entry is None and not any(map(self.tools.is_doubtful, later.links))

    def _renamed(self, file: Lineage) -> None:
        newest, at = file.places[-1], file.home(self.is_taken)
        others = file.after_a_taken_move(self.is_taken)
        doubt = next((link for link in file.links if self.tools.is_doubtful(link)), None)
        if doubt is not None:
            self._clash(file, Outcome(self._left_by_others(file.chain), self._doubt(doubt)))
            return
        if self.choices.is_strict and self.choices.on_conflict != MERGE and others:
            mover = next(link for link in file.moves if self.is_taken(link))
            reason = f"moved by {self.tools.whose(mover)}, then changed by {self.tools.whose(others[-1])}"
            self._clash(file, Outcome(self.chains[newest].now, reason), others)
            return
        found = self._take_out(file.chain)
        if found.entry is None and file.chain.now is not None and not found.conflict:
            by = self.tools.whose(next(link for link in file.links if self.is_taken(link)))
            stays = self.tools.whose(next(link for link in reversed(file.links) if not self.is_taken(link)))
            found = Outcome(file.chain.now, f"created by {by}, then moved by {stays}")
            self._clash(file, found, self._others(file.links))
        elif found.conflict:
            self._clash(file, found)
        elif found.entry is not None and self._before_it(file, at).entry is not None:
            by = self.tools.whose(next(link for link in self.chains[file.places[at]].links if self.is_taken(link)))
            reason = f"something else was at {os.fsdecode(file.places[at])}, and was deleted by {by}"
            self._clash(file, Outcome(self.chains[newest].now, reason), self._others(file.links))
        elif file.places[at] == newest or found.entry is None or self._is_free(file, at):
            self._settle_in(file, found, at)

    def _before_it(self, file: Lineage, at: int) -> Outcome:
        """What becomes of a file that had one of its names before it."""
        chain = self.chains[file.places[at]]
        other = Chain(chain.path, chain.then)
        for link in chain.links[: file.starts[at]]:
            other.add(link)
        return self._take_out(other) if file.starts[at] else Outcome(None)

    def _is_last_there(self, place: bytes, file: Lineage) -> bool:
        """Whether nobody else's file had that name since."""
        last = self.chains[place].links[-1]
        return any(last is link for link in file.links) or (
            last.after is None and any(last.span is move.span for move in file.moves)
        )

    def _clash(self, file: Lineage, outcome: Outcome, others: tuple[Link, ...] = ()) -> None:
        """Nothing of it can be decided: neither where it is now nor where it was."""
        where = file.places[-1]
        if self.chains[where].now is None:
            at = file.home(self.is_taken)
            where = file.places[at] if self._is_free(file, at) else where
        self.lineages[where] = file.chain, others
        for place in dict.fromkeys(file.places):
            if place == where:
                self.outcomes[place] = outcome
            elif self.chains[place].now is None and self._is_last_there(place, file):
                # with markers it stays where it is; else both names are shown as undecided
                is_marked = self.choices.on_conflict == MERGE and outcome.marked is not None
                self.outcomes[place] = Outcome(None) if is_marked else outcome.replace(entry=None, marked=None)

    def _settle_in(self, file: Lineage, outcome: Outcome, at: int) -> None:
        """It goes home, and is nowhere else."""
        home = file.places[at]
        where = home if outcome.entry is not None else file.places[-1]
        by = " and ".join(dict.fromkeys(self.tools.whose(k) for k in file.links if not self.is_taken(k)))
        word = f"moved to {os.fsdecode(where)}" if outcome.entry is not None else "deleted under its new name"
        for number, place in enumerate(file.places):
            chain = self.chains[place]
            if place == where:
                self.outcomes[place] = outcome
            elif place in self.outcomes:
                continue  # it came by there twice: what counts is the first time
            elif place == file.places[-1] or (chain.now is None and self._is_last_there(place, file)):
                self.outcomes[place] = self._before_it(file, number)
                self.reasons[place] = f"{word} by {by}"
        if outcome.entry is not None and home != file.places[-1]:
            self.homes[home] = file.places[-1]

    def paths(self) -> None:
        for path, chain in self.chains.items():
            doubt = next((link for link in chain.links if self.tools.is_doubtful(link)), None)
            is_known = path in self.outcomes and self.outcomes[path].conflict
            if doubt is not None and not is_known and not is_same(chain.then, chain.now):
                self.outcomes[path] = Outcome(self._left_by_others(chain), self._doubt(doubt))
            elif path not in self.outcomes:
                self.outcomes[path] = self._take_out(chain)

    def displaced(self) -> None:
        """If its old name does not get its bytes back, the new one must not lose them."""
        self._hold(displaced(self.chains, self.outcomes, self.births))

    def stranded(self) -> None:
        """The same where there is no room at the old name, or what is there is kept.

        Again until nothing is found: what is held does not get its own bytes back, and those may be elsewhere for the
        last time.
        """
        while True:
            staying = {
                content(self.outcomes[path].entry if self._is_moved(path) else chain.now)
                for path, chain in self.chains.items()
            }
            found = list(stranded(self.chains, self._is_moved, self._is_left_out, staying))
            if not found:
                return
            self._hold(found)

    def elsewhere(self) -> None:
        """A file that was changed, and then edited and moved by another in one go, is not followed: that is said."""
        born, told = newborn(self.chains, self.births), set[int]()
        for path, chain in self.chains.items() if born else ():
            places = born.get(id(chain.links[-1].span), ()) if chain.links and chain.now is None else ()
            if not places or self.is_taken(chain.links[-1]) or path in self.reasons or self.outcomes[path].conflict:
                continue
            if repository.repository_of(path):
                continue
            last = chain.links[-1]
            change = next((link for link in reversed(chain.links) if self.is_taken(link) and content(link.after)), None)
            if change is None:
                continue
            by, other, name = self.tools.whose(change), self.tools.whose(last), os.fsdecode(path)
            self.reasons[path] = f"changed by {by}, then deleted by {other}; its change may live on under another name"
            for at in places if id(last.span) not in told else ():
                self.reasons.setdefault(at, f"changed by {other}; may hold what {by} did to {name}, which is gone")
            told.add(id(last.span))

    def _hold(self, found: list[tuple[bytes, bytes]]) -> None:
        for holder, source in found:
            reason = f"holds what was at {os.fsdecode(source)}"
            self.outcomes[holder] = Outcome(self.chains[holder].now, reason)
            self.lineages[holder] = self.chains[holder], self._others(self.chains[source].links)

    def _is_left_out(self, path: bytes) -> bool:
        """Whether what was there before somebody who is taken back does not come back."""
        if path in self.homeless:
            return True
        is_kept = bool(self.outcomes[path].conflict) and self.choices.on_conflict in (KEEP, BOTH)
        return is_kept and (self.chains[path].now is not None or not self._has_room(path))

    def unselected(self) -> None:
        """A selected file may hold what was at a name that is not selected, and so does not get it back.

        Taken out here as well, it would be nowhere.
        """
        left: dict[tuple[int, bytes], list[bytes]] = {}  # what went from names that are not selected
        staying: set[bytes] = set()
        for path, chain in self.chains.items():
            stays = self.outcomes[path].entry if self._is_moved(path) else chain.now
            staying.add(content(stays))
            for link in chain.links if not self.selects(path) else ():
                left.setdefault((id(link.span), went(link)), []).append(path)
        for path in [path for path in self.chains if self._is_moved(path)] if left else ():
            links = [link for link in self.chains[path].links if came(link) and came(link) not in staying]
            sources: dict[bytes, None] = {}
            while links:
                link = links.pop()
                new = [at for at in left.get((id(link.span), came(link)), ()) if at not in sources]
                sources.update(dict.fromkeys(new))
                links += [link for at in new for link in self.chains[at].links if came(link)]
            lost = next((at for at in sources if self._is_wanted(at)), None)
            if lost is not None:
                reason = f"holds what was at {os.fsdecode(lost)}, which is not selected"
                self.outcomes[path] = Outcome(self.chains[path].now, reason)

    def _is_wanted(self, path: bytes) -> bool:
        """Whether something is to be done there, or cannot be decided."""
        outcome = self.outcomes[path]
        return bool(outcome.conflict) or not is_same(outcome.entry, self.chains[path].now)

    def _is_moved(self, path: bytes) -> bool:
        """Whether something will be done there: it is selected, or has to be a directory for what is."""
        outcome = self.outcomes[path]
        is_needed = self.selects(path) or (is_dir(outcome.entry) and not is_dir(self.chains[path].now))
        return is_needed and not outcome.conflict and self._is_wanted(path)

    def _left_by_others(self, chain: Chain) -> Entry | None:
        """What is there now or, where one who is taken back removed it, what was there before."""
        if chain.now is not None:
            return chain.now
        return next((link.after for link in reversed(chain.links) if not self.is_taken(link)), None)

    def _doubt(self, link: Link) -> str:
        return f"changed while several were at work: {self.tools.whose(link)}"

    def _take_out(self, chain: Chain) -> Outcome:
        tools = self.tools
        return take_out(chain, self.is_taken, read=tools.read, make=tools.make, whose=tools.whose)

    def parents(self) -> None:
        """What should come back needs a directory to be in: it comes back too, whoever removed it.

        But for what was moved away from there: that has a place, and stays there if nothing else needs the folder.
        """
        order = sorted(self.outcomes, key=lambda p: p.count(b"/"))
        moved = {at for home in self.homes for at in (home, *ancestors(home))}
        for path in sorted(order, key=lambda p: p in moved):
            outcome, chain = self.outcomes[path], self.chains[path]
            is_left = bool(outcome.conflict) and self.choices.on_conflict not in (KEEP, BOTH)
            if is_left or outcome.entry is None or chain.now is not None:
                continue
            missing = [at for at in ancestors(path) if at in self.outcomes and not is_dir(self.outcomes[at].entry)]
            if not missing:
                continue
            newest = self.homes.get(path)
            is_elsewhere = newest is not None and self.outcomes[newest].entry is None
            can_stay = is_elsewhere or (path in moved and newest is None)
            needed = {at: self._folder(at) for at in missing}
            if all(needed.values()) and (not can_stay or all(map(self._made_and_removed, missing))):
                for at, entry in needed.items():
                    self.outcomes[at] = Outcome(entry)
                    self.reasons[at] = "holds something that stays"
                continue
            if outcome.conflict:
                continue  # without a place to come back to it is named
            above = min(missing, key=len)  # what is below is gone with it
            there = self.outcomes[above]
            if newest is not None and is_elsewhere:
                self.outcomes[newest] = outcome  # with its directory gone it stays where it is
            if there.conflict:
                self.outcomes[path] = Outcome(None, f"something else is now at {os.fsdecode(above)}")
            else:
                self.outcomes[path] = Outcome(None)
                word = "deleted" if there.entry is None else "replaced"
                self.reasons[path] = f"its directory was {word} by {self._stayers(self.chains[above])}"
                if not is_dir(outcome.entry) and not is_elsewhere:
                    self.homeless[path] = how_to_have(chain, outcome.entry, instead=above, target=self.target)
        for path in order:
            outcome = self.outcomes[path]
            if not outcome.conflict and outcome.entry is not None and outcome.entry.kind != DIR:
                self._make_way(path)
        if self.choices.is_strict and self.choices.on_conflict == "abort":
            return  # then what is in it depends on the step that made it, and is named
        is_going = {path for path in order if self.outcomes[path].entry is None and is_dir(self.chains[path].now)}
        for path in order if is_going else ():
            if self.outcomes[path].entry is None or self.outcomes[path].conflict:
                continue
            for above in ancestors(path):
                if above in is_going:
                    self.outcomes[above] = Outcome(self.chains[above].now)
                    self.reasons[above] = "holds something that stays"

    def _folder(self, path: bytes) -> Entry | None:
        """A directory that goes or is gone, as it was last; None if something else stays there."""
        chain, outcome = self.chains[path], self.outcomes[path]
        if outcome.conflict or outcome.entry is not None:
            return None
        if is_dir(chain.now):
            return chain.now
        if chain.now is not None and (chain.now.gap or not (self.selects(path) or self._made_and_removed(path))):
            return None
        last = max((n for n, link in enumerate(chain.links) if is_dir(link.before)), default=-1)
        if last < 0:
            return None
        until = Chain(path, chain.then)
        for link in chain.links[:last]:
            until.add(link)
        found = self._take_out(until)  # not with the rights that an agent gave it
        return found.entry if is_dir(found.entry) and not found.conflict else chain.links[last].before

    def _made_and_removed(self, path: bytes) -> bool:
        """Whether a directory was made, and removed where it is gone, by none but who is taken back."""
        links = self.chains[path].links
        return all(self.is_taken(link) for link in links if is_dir(link.before) != is_dir(link.after))

    def _make_way(self, path: bytes) -> None:
        """Something else than a directory should be where one is now: not while somebody's file is in it."""
        if not is_dir(self.chains[path].now):
            return
        inside = [at for at, there in self.outcomes.items() if there.entry is not None and at.startswith(path + b"/")]
        if inside and self.choices.on_conflict == THEIRS:
            self.outcomes.update((at, Outcome(None)) for at in inside)
        elif inside:
            self.outcomes[path] = Outcome(self.chains[path].now, "holds something that stays")
            if path in self.homes:
                self.outcomes[self.homes[path]] = Outcome(self.chains[self.homes[path]].now)

    def settle(self) -> Decided:
        differences: list[tuple[bytes, Entry | None, Entry | None]] = []
        conflicts: list[Conflicted] = []
        kept: list[Kept] = []
        merged: set[bytes] = set()
        times: list[Chain] = []
        repositories: set[bytes] = set()
        for path, outcome in self.outcomes.items():
            chain = self.chains[path]
            if outcome.conflict:
                self._settle_conflict(chain, outcome, differences, conflicts, kept, merged)
            elif path in self.homeless:
                self.staying.add(parent(path))
                if self.selects(path):
                    self.left.append(Gap(path, self.reasons[path] + self.homeless[path]))
            elif is_same(chain.then, chain.now) and chain.then != chain.now:
                times.append(chain)
            elif is_same(outcome.entry, chain.now):
                if classify(chain.then, chain.now):
                    self._keep(chain, kept, repositories)
            else:
                differences.append((path, outcome.entry, chain.now))
                if outcome.is_merged:
                    merged.add(path)
        staying = self.staying | {
            parent(path) for path in (*(k.path for k in kept), *(c.path for c in conflicts), *merged)
        }
        differences += [(c.path, c.then, c.now) for c in times if c.path not in staying]
        lists = (tuple(differences), tuple(conflicts), tuple(kept), tuple(self.left))
        more = (frozenset(merged), frozenset(self.beside), self.lineages, tuple(self.revived))
        return Decided(*lists, *more, self.marked)

    def _keep(self, chain: Chain, kept: list[Kept], repositories: set[bytes]) -> None:
        """Say that a path stays; of a repository that stays, once for all its files."""
        self.staying.add(parent(chain.path))
        at = repository.repository_of(chain.path)
        if not at or at == chain.path:
            by = self._stayers(chain)
            kept.append(Kept(chain.path, self.reasons.get(chain.path) or f"changed by {by}", self._actor(chain)))
        elif at not in repositories:
            repositories.add(at)
            inside = (path for path in self.outcomes if repository.repository_of(path) == at)
            is_moved = any(not is_same(self.outcomes[path].entry, self.chains[path].now) for path in inside)
            what = "the rest of git's history stays as it is" if is_moved else "git's history stays as it is"
            kept.append(Kept(at, what, self._actor(chain)))

    def _settle_conflict(
        self,
        chain: Chain,
        outcome: Outcome,
        differences: list[tuple[bytes, Entry | None, Entry | None]],
        conflicts: list[Conflicted],
        kept: list[Kept],
        merged: set[bytes],
    ) -> None:
        path, now, then = chain.path, chain.now, chain.then
        choice = self.choices.on_conflict
        if choice == THEIRS and path not in self.firm:
            differences.append((path, then, now))
        elif choice == MERGE and outcome.marked is not None and outcome.entry is not None and self._has_room(path):
            made = self.tools.make(outcome.marked)
            changed = outcome.entry.replace(size=made.size, content=made.content, is_chunked=made.is_chunked)
            differences.append((path, changed, now))
            merged.add(path)
            self.marked[path] = f"{outcome.conflict}; both sides stand in it, between conflict markers"
        elif choice in (KEEP, BOTH):
            reason = outcome.conflict
            is_gone = now is None and outcome.entry is not None  # nothing is there to keep: what the others had left
            if is_gone and not self._has_room(path):
                reason += "; it was deleted since, and its folder is gone or something else now"
            elif is_gone:
                differences.append((path, outcome.entry, None))
                reason += "; it was deleted since, and comes back as it was before that: nothing is taken out of it"
            if choice == BOTH and then is not None and then.kind in (FILE, SYMLINK) and self.selects(path):
                whole = self.parts.get(path, path)  # a log is found by the name of its database
                beside = whole + b".checkpoint-" + self.target.encode() + path[len(whole) :]
                there = self.known.get(beside)
                if not self._has_room(path):
                    reason += "; the checkpoint's is not beside it, because its directory is gone"
                elif not self.tools.is_seen(beside):
                    reason += "; the checkpoint's is not beside it, because only it is tracked there, not its folder"
                elif there is None or there.now is None:
                    differences.append((beside, then.replace(link=0), None))
                    self.beside.add(beside)
                    reason += f"; the checkpoint's is beside it as {os.fsdecode(beside)}"
                elif there.now is not None and there.now.same_bytes_key == then.same_bytes_key:
                    reason += f"; the checkpoint's is beside it as {os.fsdecode(beside)}, where it was already"
                else:
                    reason += (
                        f"; the checkpoint's is not beside it, because {os.fsdecode(beside)} is something else now"
                    )
            if not is_gone:
                kept.append(Kept(path, reason, self._actor(chain)))
            elif self._has_room(path):
                self.revived.append(Kept(path, reason, self._actor(chain)))
            elif self.selects(path):
                self.left.append(Gap(path, reason))
        else:
            conflicts.append(Conflicted(path, outcome.conflict, self._actor(chain), current=now, wanted=then))

    def _has_room(self, path: bytes) -> bool:
        """Whether every directory above it is there, or comes back."""
        there = (self.outcomes.get(above) for above in ancestors(path))
        return all(o is None or (o.entry is not None and o.entry.kind == DIR) for o in there)

    def _stayers(self, chain: Chain) -> str:
        names = dict.fromkeys(self.tools.whose(link) for link in chain.links if not self.is_taken(link))
        return " and ".join(names) or "someone else"

    def _actor(self, chain: Chain) -> str:
        return ",".join(dict.fromkeys(link.actor for link in chain.links if not self.is_taken(link))) or "unknown"
