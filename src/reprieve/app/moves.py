"""Plan the moves of a workspace: rollback, undo, revert, redo. What each takes back and what it leaves to whom.

Carrying a plan out, the safety checkpoint and recovery are `rollback.execute`'s.
"""

from __future__ import annotations

import os

from reprieve.app import authorship
from reprieve.app.databases import Databases
from reprieve.app.paths import selector
from reprieve.errors import BadRef, Conflict, Usage
from reprieve.files import native, tree
from reprieve.files.content import read as read_pieces
from reprieve.files.links import members
from reprieve.model.actor import matches, parts
from reprieve.model.change import BY_SETTINGS, MAYBE_UNTRACKED, UNREADABLE, UNTRACKED, Gap
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.plan import Choices, Conflicted, Kept, Plan
from reprieve.model.timeline import CHECKPOINT, MOVES, PART, REDO, REVERT, ROLLBACK, UNDO, TimelineEntry
from reprieve.model.window import field
from reprieve.model.window import opens as window_opened
from reprieve.rollback.chains import Chain, changes, is_persons
from reprieve.rollback.dependants import dependants, names, span_keys, step_keys
from reprieve.rollback.plan import make_plan, not_now
from reprieve.rollback.repository import is_refreshed, repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    from reprieve.app.paths import Selects
    from reprieve.app.steps import Step
    from reprieve.app.workspace import Workspace
    from reprieve.files.snapshot import Snapshot
    from reprieve.rollback.chains import Link
    from reprieve.rollback.decided import Decided

    Has = Callable[[frozenset[str]], bool]

_PUSHED = b"/logs/refs/remotes/"


class Moves:
    """Plans for one workspace, made from one look at its tree."""

    def __init__(self, ws: Workspace, seen: Snapshot) -> None:
        self.ws, self.capture, self.timeline, self.seen = ws, ws.capture, ws.timeline, seen
        self.contents: dict[bytes, bytes] = {}  # what merges made
        self.unpushed: frozenset[str] = frozenset()  # remote branches whose pushes are undone with what is planned
        self.undone: frozenset[str] = frozenset()  # keys of the steps that the last plan of `undo` takes back
        self._unknown: tuple[Gap, ...] = ()  # what the last plan is about and knows nothing of
        self._closed = frozenset(gap.path for gap in seen.gaps if gap.reason == UNREADABLE)
        self._live: dict[bytes, bytes] | None = None
        self._databases = Databases(ws, seen)

    # -- the four moves

    def rollback(
        self,
        target: TimelineEntry,
        *,
        only: Sequence[bytes] = (),
        everything: bool = False,
        choices: Choices,
        actor: str = "",
        has_windows: bool = False,
    ) -> Plan:
        """Back to `target`, but for what is a person's. `has_windows`: as for a `story`."""
        found = authorship.story(self.capture, target.seq, self.seen, has_windows=has_windows)
        differences = found.differences()
        # also what came and went again since: a person may have made it, and the agent deleted it
        changed = {path for span in found.spans for path, _, _ in span.delta} if only else set()
        selects = self._ordinary(only, self._meant(only, differences, changed)) if only else self._tracked_at(target)
        for path in only:
            self._must_mean_something(path, differences, changed)
        if only:
            self._unknown = self._out_of_sight(only, differences)
        if actor and not any(matches(span.actor, actor) for span in found.spans):
            raise Usage(f"'{actor}' changed nothing since {target.id}", hints=["see who did: reprieve log"])
        is_pushed = any(_PUSHED in path for path, _, _ in differences)
        if not is_pushed and (everything or not (found.has_windows or actor)):
            actors = authorship.by_path(found, differences)
            return self._plan(ROLLBACK, target, differences, selects, actors=actors, of=PART if only else "")

        def is_taken(link: Link) -> bool:
            if everything:
                return True
            if actor:
                return link.actor == actor or (len(parts(link.actor)) == 1 and matches(link.actor, actor))
            # where nobody worked since, going there means to have undone what was moved away from there
            return not is_persons(link) or (link.span.is_move and not found.has_work)

        def is_doubtful(link: Link) -> bool:
            return bool(actor) and len(parts(link.actor)) > 1 and matches(link.actor, actor)

        decided = self._decide(found.chains(), is_taken, is_doubtful, selects, choices, target.id)
        of = PART if only or actor else ""
        return self._decided(ROLLBACK, target.id, target.title, decided, found, selects, of=of)

    def undo(self, name: str | Step | None, *, tail: bool, choices: Choices, has_effects: Has | None = None) -> Plan:
        """One step out of the middle. `has_effects`: whether steps of these keys have effects to undo or to report."""
        from reprieve.app.steps import find_step, is_taken_back, last_steps, last_turns

        if name and name != "turn":
            step = find_step(self.timeline, name, now_ns=self.ws.clock()) if isinstance(name, str) else name
            return self._undo(step, tail=tail, choices=choices)
        has_part = None
        if self.ws.annexes:
            from reprieve.app.annexes import can_undo

            has_part = can_undo(self.ws, choices)
        has_more = has_part is not None
        passed: list[Gap] = []
        stuck: Step | None = None
        for step in last_turns(self.timeline) if name else last_steps(self.timeline, self.seen, has_more=has_more):
            plan = self._undo(step, tail=tail, choices=choices)
            if plan.conflicts and is_taken_back(self.timeline, step):
                continue  # what is left of it is not to be told from what a merge made
            is_told = has_effects is None or not has_effects(self.undone) or is_taken_back(self.timeline, step)
            if plan.has_more_than_times or not is_told or (has_part is not None and has_part(self.undone)):
                if not name and choices.on_conflict == "abort":
                    self._must_have_ended(step)
                return plan.replace(not_undone=(*plan.not_undone, *passed)) if passed else plan
            if plan.not_undone and not plan.is_idle and not self._was_undone(step):
                # it is not what a person means who wants the last step gone, but it is the last one
                stuck, by = stuck or step, f"by '{step.name}', passed over"
                passed += [gap.replace(reason=f"{by}: {gap.reason}") for gap in plan.not_undone]
        if stuck is not None:
            return self._undo(stuck, tail=tail, choices=choices)
        raise Usage("there is no step to undo", hints=["see what happened: reprieve log"])

    def _must_have_ended(self, step: Step) -> None:
        """Raises Conflict for a step that was cut off: what changed since its end can't be told from what it did."""
        if step.entry is not None or step.before is None or step.key == "now":
            return
        from shlex import quote

        name = quote(step.name if step.name.startswith("call:") else f"step:{step.name}")
        raise Conflict(
            f"'{step.name}' was cut off: what it did can't be told from what others did after it; nothing was touched",
            hints=[f"see all of that: reprieve undo {name} --dry-run", f"take it back: reprieve undo {name}"],
        )

    def _was_undone(self, step: Step) -> bool:
        """Whether an undo of it is on the timeline: then the person was told what it left."""
        of = step.entry.id if step.entry is not None else ""
        return any(entry.kind == UNDO and field(entry.data, "of") == of for entry in self.timeline.after(step.since))

    def _undo(self, step: Step, *, tail: bool, choices: Choices) -> Plan:
        from reprieve.app.steps import must_be_kept, with_inner

        must_be_kept(self.timeline, step)
        selects = self._tracked_at(self.timeline.at(step.since))
        found = authorship.story(self.capture, step.since, self.seen)
        chains = authorship.without_superseded(self.capture, found.chains(), step.since)
        target = step.before.id if step.before else ""
        strict = choices.replace(is_strict=True)
        taken = {step.key, *step.keys}
        while True:

            def is_taken(link: Link, taken: set[str] = taken) -> bool:
                return bool(taken & names(link))

            def is_doubtful(link: Link, taken: set[str] = taken) -> bool:
                inside = [bool(taken & set(ids)) for ids in link.span.windows]
                return any(inside) and not all(inside)

            decided = self._decide(chains, is_taken, is_doubtful, selects, strict, target)
            needed = dependants(chains, decided, is_taken, self._is_clean)
            more = {key for link, _ in needed for key in step_keys(link) if not is_persons(link)} - taken
            if not tail or not more:
                break
            taken |= more
        self.undone = with_inner(self.timeline, frozenset(taken), step.since)
        conflicts = {c.path: c for c in decided.conflicts}
        if choices.on_conflict == "abort":
            for link, paths in needed:
                for path in paths:
                    word = "changed since" if path in conflicts else "needed"
                    conflicts[path] = Conflicted(path, f"{word} by {_step_name(link)}", link.actor)
        decided = decided.replace(conflicts=tuple(conflicts.values()))
        later = tuple(link.span.entry.id if link.span.entry is not None else "now" for link, _ in needed)
        of = step.entry.id if step.entry else ""
        plan = self._decided(UNDO, target, step.name, decided, found, selects, of=of, dependants=later)
        is_idle = not any(taken & span_keys(span) for span in found.spans if changes(span))
        if not is_idle and not plan.has_more_than_times:
            # its changes are undone already: to set times is no part of it that was left over
            decided = decided.replace(differences=())
            return self._decided(UNDO, target, step.name, decided, found, selects, of=of, dependants=later)
        # what others did since is not kept from it: it has nothing to take
        return plan.replace(is_idle=True, kept=()) if is_idle else plan

    def undo_beside(self, keys: frozenset[str], *, choices: Choices) -> Plan:
        """What happened in these steps of the workspace, on the timeline of a tracked path."""
        from reprieve.app.steps import Step

        first = self.timeline.head() if "now" in keys else None
        here = set(keys)
        for entry in self.timeline.backwards():
            if window_opened(entry.data) in keys:
                first = entry
            elif entry.kind == CHECKPOINT and entry.seq > 1 and field(entry.data, "with") in keys:
                here.add(entry.id)  # a step without a window is named by the entry that it ends with
                first = self.timeline.at(entry.seq - 1)
        step = Step("", "", first.seq if first else 0, first, keys=frozenset(here))
        return self._undo(step, tail=False, choices=choices) if first else self._nothing(UNDO)

    def revert(self, paths: Sequence[bytes], target: TimelineEntry, *, hunks: Sequence[int] = ()) -> Plan:
        """Single files, folders, globs or hunks, whoever changed them: the person names them."""
        differences = (found := authorship.story(self.capture, target.seq, self.seen)).differences()
        changed = {path for path, _, _ in differences}
        for path in paths:
            self._must_mean_something(path, differences, changed)
        self._unknown = self._out_of_sight(paths, differences)
        selects = self._ordinary(paths, self._meant(paths, differences, changed))
        if hunks:
            differences = [self._hunks(paths, differences, hunks)]
        plan = self._plan(REVERT, target, differences, selects, actors=authorship.by_path(found, differences))
        return plan.replace(contents=tuple(self.contents.items()))

    def redo(self, beside: Collection[str] = (), *, of: str = "") -> Plan:
        """Undo the last move that was not redone yet. `beside`: ids of moves that moved more than this tree.

        `of`: the id of the one that is meant.
        """
        for move in self._to_redo(beside):
            if of and move.id != of:
                continue
            differences, conflicts = self._back_from(move)
            if differences or conflicts or of or move.id in beside:
                return self._redo(move, differences, conflicts)
        raise Usage("there is nothing to redo", hints=["see what happened: reprieve log"])

    def redo_beside(self, of: str) -> Plan:
        """Undo what was done here together with that move of the workspace."""
        for move in self._to_redo():
            if field(move.data, "with") == of:
                return self._redo(move, *self._back_from(move))
        return self._nothing(REDO)

    def _nothing(self, kind: str) -> Plan:
        return make_plan(kind, target="", label="", differences=(), hash_of=native.sha256)

    def _redo(self, move: TimelineEntry, differences: tree.Delta, conflicts: list[Conflicted]) -> Plan:
        target = self.timeline.get(field(move.data, "safety"))
        return self._made(
            REDO,
            target.id if target else move.id,
            f"before {move.label}",
            differences,
            conflicts=tuple(conflicts),
            kept=tuple(self._put_into(move, differences, {conflict.path for conflict in conflicts})),
            of=move.id,
        )

    # -- deciding

    def _decide(
        self,
        chains: Mapping[bytes, Chain],
        is_taken: Callable[[Link], bool],
        is_doubtful: Callable[[Link], bool],
        selects: Selects | None,
        choices: Choices,
        target: str,
    ) -> Decided:
        # only here: most rollbacks have nothing to merge
        from reprieve.rollback.decided import Tools
        from reprieve.rollback.selective import decide

        choices = choices.replace(unpushed=self.unpushed)
        only = self.capture.limits.only
        is_seen = (lambda path: path.partition(b"/")[0] in only) if only else (lambda path: True)
        databases = self._databases
        more = (is_doubtful, is_seen, databases.there, databases.is_one, databases.is_index)
        tools = Tools(self._read, self._make, self.ws.current_bytes, authorship.called, *more)
        return decide(chains, is_taken, selects=selects, choices=choices, tools=tools, target=target)

    def _is_clean(self, chain: Chain, is_taken: Callable[[Link], bool]) -> bool:
        from reprieve.rollback.takeout import take_out

        return not take_out(chain, is_taken, read=self._read, make=self._make, whose=authorship.called).conflict

    def _decided(
        self,
        kind: str,
        target: str,
        label: str,
        decided: Decided,
        found: authorship.Story,
        selects: Selects | None,
        *,
        of: str = "",
        dependants: tuple[str, ...] = (),
    ) -> Plan:
        return self._made(
            kind,
            target,
            label,
            decided.differences,
            selects=selects and (lambda path: selects(path) or path in decided.beside),
            actors=authorship.by_path(found, decided.differences),
            conflicts=decided.conflicts,
            kept=decided.kept,
            revived=decided.revived,
            left=decided.left,
            merged=decided.merged,
            marked=decided.marked,
            contents=tuple(self.contents.items()),
            of=of,
            dependants=dependants,
        )

    def _plan(
        self,
        kind: str,
        target: TimelineEntry,
        differences: tree.Delta,
        selects: Selects | None,
        actors: Mapping[bytes, str] | None = None,
        of: str = "",
    ) -> Plan:
        return self._made(kind, target.id, target.title, differences, selects=selects, actors=actors, of=of)

    def _made(
        self,
        kind: str,
        target: str,
        label: str,
        differences: Sequence[tuple[bytes, Entry | None, Entry | None]],
        *,
        left: tuple[Gap, ...] = (),
        **more: Any,
    ) -> Plan:
        """The plan, with what holds for all four moves."""
        joined, parts = self._databases.join(self._without_forgotten(differences))
        selects: Selects | None = more.get("selects")
        plan = make_plan(
            kind,
            target=target,
            label=label,
            differences=joined,
            parts=parts,
            left=(*left, *self._unknown),
            closed=self._closed,
            is_root_user=os.geteuid() == 0,
            hash_of=native.sha256,
            names_of=self._names_of,
            **more,
        )
        return plan.replace(gaps=tuple(gap for gap in self.seen.gaps if selects is None or selects(gap.path)))

    def _tracked_at(self, entry: TimelineEntry | None) -> Selects | None:
        """What an entry knows of a folder of which only some names are tracked; None: all there is.

        A name that was not looked at then is no more in its tree than one that was not there: it stays, and is named.
        """
        names = self.capture.limits.only
        if not names:
            return None
        known = self.capture.names_at(entry)
        if known is not None or entry is None:
            unknown, reason = names - (known or names), UNTRACKED
        else:  # of an older version, which did not write the names down: what is in its tree was looked at
            then, now = self.capture.tree_at(entry.seq), self.seen.index
            unknown = frozenset(name for name in names if tree.lookup(now, name) and not tree.lookup(then, name))
            reason = MAYBE_UNTRACKED
        self._unknown = tuple(Gap(name, reason) for name in sorted(unknown))
        return lambda path: (name := path.partition(b"/")[0]) in names and name not in unknown

    def _without_forgotten(self, differences: Sequence[tuple[bytes, Entry | None, Entry | None]]) -> tree.Delta:
        forgotten = self.capture.forgotten()
        if not forgotten:
            return list(differences)
        gap = "its content was forgotten"
        return [
            (path, then.replace(gap=gap) if then and then.content in forgotten else then, now)
            for path, then, now in differences
        ]

    def _names_of(self, groups: set[int]) -> list[tuple[bytes, Entry]]:
        return members(self.seen.index, groups)

    # -- contents

    def _read(self, entry: Entry) -> bytes:
        """Content of a file that was captured, is there now, or was just made by a merge."""
        made = self.contents.get(entry.content)
        if made is not None:
            return made
        if self._live is None:
            self._live = {after.content: path for path, _, after in self.seen.changes or [] if after is not None}
        path = self._live.get(entry.content)
        if path is not None and not self.ws.store.blobs.has([entry.content]):
            data = self.ws.current_bytes(path)  # a preview keeps nothing
            if data is None:
                raise Conflict(f"'{os.fsdecode(path)}' changes while it is looked at; nothing was touched")
            return data
        pieces = read_pieces(self.ws.store.blobs, entry.content, is_chunked=entry.is_chunked)
        return b"".join(bytes(n) if data is None else data for n, data in pieces)

    def _make(self, data: bytes) -> Entry:
        id = native.sha256(data)
        self.contents[id] = data
        return Entry(FILE, 0, 0, 0, len(data), content=id)

    # -- revert and redo

    def _meant(self, paths: Sequence[bytes], differences: tree.Delta, changed: set[bytes]) -> Selects:
        """`selector`, knowing what was there then and is there now."""
        named = changed.intersection(path.rstrip(b"/") for path in paths)

        def is_there(path: bytes) -> bool:
            return path in named or tree.lookup(self.seen.index, path) is not None

        def is_database(path: bytes) -> bool:
            now = tree.lookup(self.seen.index, path)
            sides = next(((then, now) for p, then, now in differences if p == path), (now, now))
            return self._databases.is_one(path, sides)

        return selector(paths, is_there=is_there, is_database=is_database)

    def _ordinary(self, paths: Sequence[bytes], selects: Selects) -> Selects:
        """What a person means by these paths: files, and not the state of a repository that is there among them."""
        is_there: dict[bytes, bool] = {}
        named = any(b".git" in path.split(b"/") for path in paths)

        def is_ordinary(path: bytes) -> bool:
            at = repository_of(path) if not named else b""
            if at and at not in is_there:
                is_there[at] = tree.lookup(self.seen.index, at + b"/HEAD") is not None
            return selects(path) and not (at and is_there[at])

        return is_ordinary

    def _must_mean_something(self, path: bytes, differences: tree.Delta, changed: set[bytes]) -> None:
        selects = self._meant([path], differences, changed)
        if any(map(selects, changed)) or tree.lookup(self.seen.index, path) is not None:
            return
        if any(selects(p) for p, _ in tree.entries(self.seen.index)) or self._gap_over(path) is not None:
            return
        raise Usage(f"'{os.fsdecode(path)}' was not there then and is not there now", hints=["reprieve status"])

    def _out_of_sight(self, paths: Sequence[bytes], differences: tree.Delta) -> tuple[Gap, ...]:
        """What was named and is not protected, or a directory above it is not: it may differ, or not."""
        known = {path for path, then, now in differences if not (then and then.gap and now and now.gap)}
        found = []
        for path in sorted({path.rstrip(b"/") for path in paths}):
            gap = self._gap_over(path)
            if gap is None:
                continue
            if gap.reason.startswith(BY_SETTINGS):  # no promise, but who names it expects one
                found.append(Gap(path, f"{not_now(gap.path, gap.reason)}; left as it is"))
            elif path not in known:
                found.append(Gap(path, not_now(gap.path, gap.reason)))
        return tuple(found)

    def _gap_over(self, path: bytes) -> Gap | None:
        """The gap that a path is, or is in."""
        for at in (path.rstrip(b"/"), *tree.ancestors(path.rstrip(b"/"))):
            there = tree.lookup(self.seen.index, at)
            if there is not None and there.gap:
                return Gap(at, there.gap)
        return None

    def _hunks(
        self, paths: Sequence[bytes], differences: tree.Delta, numbers: Sequence[int]
    ) -> tuple[bytes, Entry | None, Entry | None]:
        from reprieve.app.hunks import CONTEXT
        from reprieve.files.merge import hunks, is_text, revert_hunks

        if len(paths) != 1:
            raise Usage("--hunk works on one file at a time")
        path = paths[0]
        then, now = next(((then, now) for p, then, now in differences if p == path), (None, None))
        if then is None or now is None or not then.kind == now.kind == FILE or then.gap or now.gap:
            raise Usage(f"'{os.fsdecode(path)}' has no hunks: it is not a file that was there then and changed since")
        old, new = self._read(then), self._read(now)
        if not (is_text(old) and is_text(new)):
            raise Usage(f"'{os.fsdecode(path)}' is not a text: bring it back whole")
        found = hunks(old, new, gap=2 * CONTEXT)
        wrong = [number for number in numbers if not 1 <= number <= len(found)]
        if wrong:
            raise Usage(
                f"'{os.fsdecode(path)}' has {len(found)} hunks, there is no {wrong[0]}",
                hints=[f"see them: reprieve diff -- {os.fsdecode(path)}"],
            )
        made = self._make(revert_hunks(new, found, {number - 1 for number in numbers}))
        if made.content == then.content:
            return path, then, now
        if made.size > 1 << 20:
            raise Usage(f"'{os.fsdecode(path)}' is too large to bring back by hunks: bring it back whole")
        return path, now.replace(size=made.size, content=made.content, is_chunked=False), now

    def _back_from(self, move: TimelineEntry) -> tuple[tree.Delta, list[Conflicted]]:
        """What undoes a move: (path, before it, now), and what is no longer as the move left it."""
        differences: tree.Delta = []
        conflicts = []
        coming: set[bytes] = set()
        only = self.capture.limits.only
        delta = tree.decode_delta(self.capture.object(move.delta)) if move.delta else []
        for path, before, after in delta:
            if only and path.partition(b"/")[0] not in only:
                self._unknown += (Gap(path, "no longer tracked"),) if path else ()
                continue
            now = tree.lookup(self.seen.index, path)
            if now == before or self._databases.is_of_no_one(path, (now, before, after)):
                continue
            if is_as_left(now, after) or is_refreshed(path, after, now, self._read):
                above = tree.parent(path)
                if now is None and above not in coming and not self._is_dir(above):
                    conflicts.append(Conflicted(path, "its directory is gone", wanted=before))
                    continue
                coming.add(path)
                differences.append((path, before, now))
            elif not (is_as_left(now, before) or is_refreshed(path, before, now, self._read)):
                conflicts.append(Conflicted(path, f"changed since the {move.kind}", current=now, wanted=before))
        if conflicts:
            self._databases.settle(delta, differences, conflicts, self._read)
        self._join_groups(move, differences, conflicts)
        return differences, conflicts

    def _put_into(self, move: TimelineEntry, differences: tree.Delta, others: Collection[bytes]) -> Iterator[Kept]:
        """What is in folders that go, or become something else, and is not the move's: the topmost of each."""
        known = {*others, *(path for path, _, _ in differences)}
        inside = b""
        for path, before, now in differences:  # in the order of the tree
            if now is None or now.kind != DIR or (before is not None and before.kind == DIR):
                continue
            if inside and path.startswith(inside):
                continue
            inside = path + b"/"
            below = b""
            for row in range(native.find(self.seen.index, path) + 1, tree.count(self.seen.index)):
                at = native.get(self.seen.index, row)[0]
                if not at.startswith(inside):
                    break
                if at not in known and not (below and at.startswith(below)):
                    below = at + b"/"
                    yield Kept(at, f"made since the {move.kind}")

    def _is_dir(self, path: bytes) -> bool:
        there = tree.lookup(self.seen.index, path)
        return there is not None and there.kind == DIR

    def _join_groups(self, move: TimelineEntry, differences: tree.Delta, conflicts: list[Conflicted]) -> None:
        """A file that comes back was one with others that the move left alone: they become one again."""
        groups = {before.link for _, before, _ in differences if before is not None and before.link}
        if not groups:
            return
        known = {path for path, _, _ in differences} | {conflict.path for conflict in conflicts}
        for path, before in members(self.capture.tree_at(move.seq - 1), groups):  # the safety checkpoint
            now = tree.lookup(self.seen.index, path)
            if now is None or now == before or path in known:
                continue
            if now.gap:
                reason = f"cannot be read, and is to be one file with what comes back ({now.gap})"
                conflicts.append(Conflicted(path, reason, current=now, wanted=before))
            elif now.link != before.link and is_as_left(now, before):
                differences.append((path, before, now))

    def _to_redo(self, beside: Collection[str] = ()) -> Iterator[TimelineEntry]:
        """Moves that were not redone yet, newest first; one that has nothing to take back is for the caller to pass."""
        redone = set()
        for entry in self.timeline.backwards():
            if entry.kind not in MOVES:
                continue
            if entry.kind == REDO:
                redone.add(field(entry.data, "of"))
            elif entry.id not in redone:
                if entry.is_pruned:
                    return
                before = self.timeline.at(entry.seq - 1)
                if before is not None and before.is_pruned:
                    raise BadRef(
                        f"what was there before '{entry.label}' was pruned, so it can't be brought back",
                        hints=["see what is kept: reprieve log"],
                    )
                if entry.delta or entry.id in beside:
                    yield entry


def is_as_left(now: Entry | None, left: Entry | None) -> bool:
    """Whether nobody changed it since; times do not count, and a directory's content is its entries'."""
    if now is None or left is None:
        return now is left
    rights = (now.mode, now.uid, now.gid, now.xattrs) == (left.mode, left.uid, left.gid, left.xattrs)
    return rights and (now.kind == left.kind == DIR or now.same_bytes_key == left.same_bytes_key)


def _step_name(link: Link) -> str:
    entry = link.span.entry
    if is_persons(link) or entry is None:
        return authorship.called(link)
    name = f"step '{entry.step}'" if entry.step else f"'{entry.title}'" if entry.title else "a checkpoint"
    return f"{name} ({entry.id})"
