"""A workspace and what can be done with it: the use cases that every front end calls."""

from __future__ import annotations

import os
import time

from reprieve.app import refs
from reprieve.app.outside import worktree_json
from reprieve.errors import BadRef, Conflict, StoreFailed
from reprieve.files import native, promised, tree
from reprieve.files.capture import Capture
from reprieve.files.snapshot import Limits
from reprieve.model.actor import PERSON
from reprieve.model.change import Change, Gap, classify
from reprieve.model.entry import Entry
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import CHECKPOINT, MOVES, Draft, TimelineEntry, WorkspaceRecord
from reprieve.model.value import Value
from reprieve.model.window import SAFETY, Window, field, sealed
from reprieve.store.chain import as_stored, new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from reprieve.app.annexes import Annex, Annexed
    from reprieve.app.config import Config
    from reprieve.app.guard import Step as Guarded
    from reprieve.app.moves import Moves
    from reprieve.app.steps import Step
    from reprieve.effects.journal import Journal
    from reprieve.effects.memory import Memory
    from reprieve.files.snapshot import Snapshot
    from reprieve.model.effect import Effect
    from reprieve.model.plan import Plan, Report
    from reprieve.store.protocols import Store


class Made(Value):
    """A checkpoint that was taken."""

    entry: TimelineEntry
    gaps: tuple[Gap, ...]
    is_new: bool = True  # False: nothing had changed, and the entry is the one that was there

    @property
    def id(self) -> str:
        """What every command and method takes for it."""
        return self.entry.id

    @property
    def label(self) -> str:
        """Its name."""
        return self.entry.title


class Status(Value):
    """What is different from a checkpoint; `base` is None when there is none yet."""

    base: TimelineEntry | None
    changes: tuple[Change, ...]
    gaps: tuple[Gap, ...]


class Workspace:
    """A protected directory tree. Made by `finding.open_workspace`."""

    def __init__(
        self,
        record: WorkspaceRecord,
        *,
        store: Store,
        home: str,
        root_fd: int,
        config: Config,
        limits: Limits,
        reporter: Reporter,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.id, self.root, self.store, self.home = record.id, record.root, store, home
        self.root_fd, self.config, self.reporter, self.clock = root_fd, config, reporter, clock
        self.timeline = store.timeline(record.id)
        self.capture = Capture(
            root_fd,
            store,
            record.id,
            root=record.root,
            index_path=os.path.join(home, "index", record.id),
            limits=limits,
            reporter=reporter,
        )
        self.actor = PERSON  # who gives the commands; a front end that hears of an agent says so
        self._again: dict[str, Callable[[str], tuple[Plan, Report | None]]] = {}
        self.memory: Memory | None = None  # what this process has changed in itself and can set back
        self.blocks: set[int] = set()  # driver's connections, by id(), that are in a transaction block
        self.unsealed: list[Guarded] = []  # guarded calls whose end could not be recorded
        self.annexes: tuple[Annex, ...] = ()  # tracked paths outside the tree; set by who opens the workspace
        self.former: tuple[Annex, ...] | None = None  # of what is no longer tracked; None: no annex on this machine
        self.lost: tuple[Gap, ...] = ()  # tracked paths whose folder is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store and the root."""
        for annex in (*self.annexes, *(self.former or ())):
            os.close(annex.ws.root_fd)
        self.annexes, self.former = (), None
        if self.root_fd >= 0:
            os.close(self.root_fd)
            self.root_fd = -1
            self.store.close()

    # -- checkpoints

    def checkpoint(
        self,
        label: str = "",
        *,
        pin: bool = False,
        note: str = "",
        actor: str = "",
        step: str = "",
        data: str = "",
        only_changes: bool = False,
        label_of: Callable[[tree.Delta], str] | None = None,
        opens: Window | None = None,
        closes: str = "",
        left: tuple[tuple[int, int], ...] = (),
        alters: Window | None = None,
    ) -> Made:
        """Take a checkpoint; it is durable when this returns. The windows tell who made what changed since the last.

        `only_changes`: none if a person would see no change. `label_of` makes the label from what they would see.
        `opens` and `closes` (a window's id) begin and end one here, `alters` brings one up to date; `left`: the
        processes that it leaves behind.
        """
        with self.store.lock(self.id):
            self._recover()
            try:
                seen = self.capture.look(keep=True)
                beside: list[tuple[Annex, Snapshot]] = []
                gaps = seen.gaps
                if self.annexes or self.lost:
                    from reprieve.app.annexes import look_all

                    beside, more = look_all(self)
                    gaps = (*gaps, *more)
            except KeyboardInterrupt:
                self._keep_what_was_read()
                raise
            is_new = bool(seen.changed)
            if beside and not is_new:
                from reprieve.app.annexes import is_news

                is_new = any(is_news(annex, other) for annex, other in beside)
            head = self.timeline.head() if only_changes and not is_new else None
            if head is not None:
                return Made(head, gaps, is_new=False)
            if label_of is not None:
                label = label_of([c for c in seen.changes or () if classify(c[1], c[2])])
            draft = Draft(CHECKPOINT, self.clock(), actor, label, note, step, data=data)
            if opens is not None:
                draft = draft.replace(id=new_id())
                opens = opens.replace(opened=draft.id)
            if beside:
                from reprieve.app.annexes import changed_in, record_all

                draft = draft.replace(changed=changed_in(beside))
                with self.store.transaction():
                    entry = self.capture.record(seen, draft, opens=opens, closes=closes, left=left, alters=alters)
                    record_all(beside, entry, actor=actor, opens=opens, closes=closes, left=left)
            else:
                entry = self.capture.record(seen, draft, opens=opens, closes=closes, left=left, alters=alters)
            if pin:
                self.timeline.pin(entry.id)
                entry = entry.replace(is_pinned=True)
        return Made(entry, gaps)

    def open_window(
        self,
        actor: str,
        step: str,
        *,
        label: str = "",
        note: str = "",
        turn: int = 0,
        pid: int = 0,
        parent: str = "",
        key: str = "",
        is_background: bool = False,
        is_container: bool = False,
        data: str = "",
        writes: tuple[str, ...] = (),
    ) -> tuple[Made, Window]:
        """Take a checkpoint and let an actor begin: what changes from here on is theirs, until the window closes.

        With `pid` it also ends when that process is gone. `parent` is the window that it is part of. A step without a
        name is a call that is named by us.
        """
        from reprieve.files.processes import born

        id = new_id()
        window = Window(id, actor, step or f"call:{id}", turn=turn, pid=pid, born=born(pid) if pid else 0, key=key)
        window = window.replace(is_background=is_background, is_container=is_container, parent=parent, writes=writes)
        data = worktree_json(self.root, data.removeprefix("{").removesuffix("}"))
        made = self.checkpoint(label, note=note, opens=window, data=data and f"{{{data}}}")
        return made, window.replace(opened=made.entry.id)

    def close_window(
        self,
        window: Window,
        *,
        label: str = "",
        note: str = "",
        left: tuple[tuple[int, int], ...] = (),
        more: str = "",
        actor: str = "",
    ) -> Made:
        """Take the checkpoint that ends an actor's step. `more`: fields for its data, as JSON text.

        `actor`: who made what changed, where the caller knows better than the windows tell.
        """
        data = sealed(window.opened, worktree_json(self.root, more))
        return self.checkpoint(label, note=note, step=window.step, data=data, closes=window.id, left=left, actor=actor)

    def resolve(self, ref: str) -> TimelineEntry:
        """The entry that ref means. Raises BadRef."""
        return refs.resolve(self.timeline, ref, now_ns=self.clock())

    def log(self, limit: int = 0, search: str = "", kinds: Sequence[str] = ()) -> Iterator[TimelineEntry]:
        """Entries, newest first."""
        return self.timeline.newest_first(limit=limit, search=as_stored(search), kinds=kinds)

    def pin(self, ref: str, *, pinned: bool = True) -> TimelineEntry:
        """Protect a checkpoint from pruning, or no longer."""
        entry = self.resolve(ref)
        self.timeline.pin(entry.id, pinned=pinned)
        return entry.replace(is_pinned=pinned)

    def name(self, ref: str, text: str) -> TimelineEntry:
        """Give an entry a name of a person's own. "" takes away what it is called: that name, else the label."""
        entry = self.resolve(ref)
        name = self.label(text) if text or entry.name else None
        self.timeline.rename(entry.id, name)
        return entry.replace(name=name)

    def label(self, text: str) -> str:
        """What somebody calls a checkpoint. Raises Usage if it would never be found by that."""
        return refs.label(self.timeline, text, now_ns=self.clock())

    # -- looking

    def status(self, since: str | None = None) -> Status:
        """What changed since a checkpoint (default: the latest). Writes nothing."""
        from reprieve.app.authorship import changes_of, story

        with self.store.lock(self.id):
            self._recover()
            try:
                base = self.resolve(since) if since else refs.latest(self.timeline)
            except BadRef:
                if since:
                    raise
                base = None
            seen = self.capture.look(keep=False)
            changes: tuple[Change, ...] = ()
            if base is not None:
                found = story(self.capture, base.seq, seen)
                changes = changes_of(found, found.differences())
                gaps = seen.gaps
                if self.annexes or self.lost:
                    from reprieve.app.annexes import changes as beside

                    more, their_gaps = beside(self, base)
                    changes, gaps = (*changes, *more), (*gaps, *their_gaps)
                return Status(base, changes, gaps)
        return Status(base, changes, seen.gaps)

    def diff(self, a: str | None, b: str | None, paths: Sequence[bytes] = ()) -> Status:
        """What differs between two entries, or between one (default: the latest checkpoint) and now."""
        from reprieve.app.authorship import changes_of, story

        if b is None:
            found = self.status(a)
        else:
            first, second = self.resolve(a or "latest"), self.resolve(b)
            older, newer = sorted((first, second), key=lambda e: e.seq)
            delta = self.capture.changes_between(older.seq, newer.seq)
            if first is newer:
                delta = [(path, after, before) for path, before, after in delta]
            changes = changes_of(story(self.capture, older.seq, None, newer.seq), delta)
            if self.annexes:
                from reprieve.app.annexes import changes as beside

                changes = (*changes, *beside(self, first, second)[0])
            found = Status(first, changes, ())
        if paths:
            from reprieve.app.paths import selector

            selects = selector(paths)
            found = found.replace(changes=tuple(c for c in found.changes if selects(c.path)))
        return found

    def content(self, entry: Entry | None) -> bytes | None:
        """The captured bytes of a file, None if it has none. Raises StoreCorrupted."""
        if entry is None or not entry.content:
            return None
        from reprieve.files.content import read

        pieces = read(self.store.blobs, entry.content, is_chunked=entry.is_chunked)
        return b"".join(bytes(n) if data is None else data for n, data in pieces)

    def current_bytes(self, path: bytes) -> bytes | None:
        """The bytes of a file as it is now, None if there is no regular file."""
        import stat

        if path.startswith(b"/"):
            for annex in self.annexes:
                if path.startswith(annex.path(b"") + b"/"):
                    return annex.ws.current_bytes(path[len(annex.path(b"")) + 1 :])
        try:
            fd = native.open_beneath(self.root_fd, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else None

    def rollback(
        self,
        ref: str | None = None,
        *,
        only: Sequence[bytes] = (),
        everything: bool = False,
        on_conflict: str = "abort",
        actor: str = "",
        take_pushed: bool = False,
        effects: str = "no",
        dry_run: bool = False,
        expect: str = "",
    ) -> tuple[Plan, Report | None]:
        """Move the tree back to ref (default: the latest checkpoint); `expect` is the id of the plan agreed to.

        What is known to be a person's stays, unless `everything` is to go. `actor`: only what that one did.
        `effects`: "no" leaves them out, "list" names them and leaves them, "undo" takes them back too.
        """
        from reprieve.app.beyond import with_beyond
        from reprieve.model.actor import matches
        from reprieve.model.plan import Choices

        def plan(moves: Moves) -> Plan:
            choices = Choices(on_conflict, take_pushed)
            target = self._target(ref)
            made = moves.rollback(target, only=only, everything=everything, choices=choices, actor=actor)
            return made if only else with_beyond(self, made, lambda w: not actor or matches(w.actor, actor))

        def beside(moves: Moves, annex: Annex) -> Plan | None:
            from reprieve.app.annexes import had_windows, position
            from reprieve.app.authorship import is_told

            target, choices = self._target(ref), Choices(on_conflict, take_pushed)
            if (at := position(self, annex, target)) is None:
                return None
            told = is_told(self.timeline, target.seq) or (bool(annex.ended) and had_windows(self, target))
            return moves.rollback(at, everything=everything, choices=choices, actor=actor, has_windows=told)

        def outside(journal: Journal) -> Iterator[Effect]:
            return journal.effects(since=self._target(ref).seq, is_open=True)

        side = None if only or actor else outside
        return self._move(
            plan,
            None if only else beside,
            side,
            effects=effects,
            everything=everything,
            on_conflict=on_conflict,
            dry_run=dry_run,
            expect=expect,
        )

    def undo(
        self,
        step: str | Step | None = None,
        *,
        tail: bool = False,
        on_conflict: str = "abort",
        effects: str = "no",
        dry_run: bool = False,
        expect: str = "",
    ) -> tuple[Plan, Report | None]:
        """Take one step back (default: the last one) and keep what came after it. `effects` as for `rollback`.

        `step`: a name, or the steps themselves as one; the id of an effect means that effect alone.
        """
        from reprieve.app.beside import find_effect, untried_effects
        from reprieve.app.beyond import with_beyond
        from reprieve.model.plan import Choices

        if isinstance(step, str) and (it := find_effect(self, step)) is not None:
            from reprieve.app.effects import undo_one

            return undo_one(self, it, how=effects, tail=tail, on_conflict=on_conflict, dry_run=dry_run, expect=expect)

        def plan(moves: Moves) -> Plan:
            made = moves.undo(step, tail=tail, choices=Choices(on_conflict), has_effects=has_effects)
            found.append(moves.undone)
            return with_beyond(self, made, lambda window: window.id in found[0])

        def beside(moves: Moves, annex: Annex) -> Plan | None:
            return moves.undo_beside(found[0], choices=Choices(on_conflict))

        def outside(journal: Journal) -> Iterator[Effect]:
            return journal.effects(windows=tuple(found[0]), is_open=True)

        has_effects = untried_effects(self) if effects != "no" else None
        found: list[frozenset[str]] = []
        return self._move(
            plan, beside, outside, effects=effects, on_conflict=on_conflict, dry_run=dry_run, expect=expect
        )

    def revert(
        self,
        paths: Sequence[bytes],
        to: str | None = None,
        *,
        hunks: Sequence[int] = (),
        dry_run: bool = False,
        expect: str = "",
    ) -> tuple[Plan, Report | None]:
        """Bring back single files, folders or globs; with `hunks` (counted from 1) those places of one file."""

        def plan(moves: Moves) -> Plan:
            return moves.revert(paths, self._target(to), hunks=hunks)

        return self._move(plan, None, None, dry_run=dry_run, expect=expect)

    def redo(self, *, of: str = "", dry_run: bool = False, expect: str = "") -> tuple[Plan, Report | None]:
        """Undo the last rollback, undo or revert that was not redone yet; `of`: that one, by its id."""

        def plan(moves: Moves) -> Plan:
            made = moves.redo(self._moved_beside(), of=of)
            found.append(made.of)
            return made

        def beside(moves: Moves, annex: Annex) -> Plan | None:
            return moves.redo_beside(found[0])

        found: list[str] = []
        made, report = self._move(plan, beside, None, dry_run=dry_run, expect=expect)
        if report is not None and os.path.exists(os.path.join(self.home, "effects.db")):
            from reprieve.app.effects import stays_undone

            report = report.replace(effects=stays_undone(self, made))
        return made, report

    def plan_rollback(self, ref: str | None = None, *, only: Sequence[bytes] = (), everything: bool = False) -> Plan:
        """What `rollback` would do; `apply` it."""
        return self._remember(lambda e: self.rollback(ref, only=only, everything=everything, dry_run=not e, expect=e))

    def plan_revert(self, paths: Sequence[bytes], to: str | None = None) -> Plan:
        """What `revert` would do; `apply` it."""
        return self._remember(lambda e: self.revert(paths, to, dry_run=not e, expect=e))

    def plan_redo(self) -> Plan:
        """What `redo` would do; `apply` it."""
        return self._remember(lambda e: self.redo(dry_run=not e, expect=e))

    def apply(self, plan: Plan) -> Report:
        """Carry out a plan that this workspace made. Raises Conflict if the folder changed since."""
        report = self._again[plan.id](plan.id)[1]
        assert report is not None
        return report

    # -- inside

    def _target(self, ref: str | None) -> TimelineEntry:
        return self.resolve(ref) if ref else refs.latest(self.timeline)

    def _remember(self, again: Callable[[str], tuple[Plan, Report | None]]) -> Plan:
        plan = again("")[0]
        self._again[plan.id] = again
        return plan

    def _move(
        self,
        make: Callable[[Moves], Plan],
        beside: Callable[[Moves, Annex], Plan | None] | None,
        outside: Callable[[Journal], Iterator[Effect]] | None,
        *,
        dry_run: bool,
        expect: str,
        effects: str = "no",
        everything: bool = False,
        on_conflict: str = "abort",
    ) -> tuple[Plan, Report | None]:
        if effects != "no" and outside is not None and os.path.exists(os.path.join(self.home, "effects.db")):
            from functools import partial

            from reprieve.app.effects import move_world

            move = partial(move_world, effects=effects, everything=everything, on_conflict=on_conflict)
            return move(self, make, beside, outside, dry_run=dry_run, expect=expect)
        return self.move_files(make, beside, dry_run=dry_run, expect=expect)

    def move_files(
        self,
        make: Callable[[Moves], Plan],
        beside: Callable[[Moves, Annex], Plan | None] | None,
        *,
        dry_run: bool,
        expect: str,
    ) -> tuple[Plan, Report | None]:
        """Plan a move of files, and unless it is a dry run make it."""
        from reprieve.app.moves import Moves

        with self.store.lock(self.id):
            self._recover()
            if not dry_run:
                from reprieve.app.run import refuse_while_running

                refuse_while_running(self)
                self._say_who_is_at_work()
            seen = self.capture.look(keep=not dry_run)
            plan = whole = make(Moves(self, seen))
            planned: list[Annexed] = []
            gaps: list[Gap] = []
            if beside is not None and self.former is not None:
                from reprieve.app.annexes import joined, plan_all

                planned, gaps = plan_all(self, beside, plan, keep=not dry_run)
                whole = joined(plan, planned, gaps)
            if dry_run:
                return whole, None
            if expect and whole.id != expect:
                raise Conflict(
                    "the folder changed since the plan was made; nothing was touched",
                    hints=["look at the new plan and confirm again"],
                )
            seen = self.capture.with_stored_delta(seen)
            if planned:
                from reprieve.app.annexes import move_all

                report = move_all(self, plan, seen, planned)
            else:
                from reprieve.rollback.execute import execute

                report = execute(self.capture, plan, seen, new_id=new_id, now_ns=self.clock(), actor=self.actor)
                self._keep_conflicts(plan, report)
            return whole, report.replace(not_undone=(*report.not_undone, *gaps))

    def _keep_conflicts(self, plan: Plan, report: Report) -> None:
        """What a person wrote while a move ran is part of the story, and must be in the store."""
        if report.conflicts:
            data = f'{SAFETY}{report.operation}"}}'
            draft = Draft(CHECKPOINT, self.clock(), "", f"after {plan.kind} with conflicts", data=data)
            self.capture.record(self.capture.look(keep=True), draft)

    def _keep_what_was_read(self) -> None:
        """An interrupted checkpoint goes on where it was: its content need not be stored again."""
        try:
            self.store.blobs.flush()
        except StoreFailed:
            self.reporter.note("what was read last is not kept")  # the interrupt hit in the middle of a write

    def _moved_beside(self) -> set[str]:
        """Ids of moves that also moved a tracked path."""
        entries = (entry for annex in self.annexes for entry in annex.ws.timeline.backwards() if entry.kind in MOVES)
        return {field(entry.data, "with") for entry in entries}

    def recover(self) -> None:
        """Finish, or take back, a move that was interrupted."""
        with self.store.lock(self.id):
            self._recover()

    def _recover(self) -> None:
        promised.keep(self.capture)
        for ws in (self, *(annex.ws for annex in self.annexes)):
            if ws.timeline.intent():
                from reprieve.rollback.execute import recover

                recover(ws.capture, now_ns=self.clock())

    def _say_who_is_at_work(self) -> None:
        """An agent in the middle of a call can't be stopped from here; a person has to know."""
        _, _, now = self.capture.author()
        for window in now.open:
            if window.step.startswith("call:"):
                self.reporter.warn(
                    f"{window.actor} may be in the middle of '{window.step}'; what it writes from now on stays"
                )
