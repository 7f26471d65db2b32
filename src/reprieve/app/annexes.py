"""Tracked paths outside the tree: each is a small workspace of its own that moves along with the one that tracks it.

    checkpoint of the workspace W ──▶ entry on W's timeline
                                  └─▶ entry on each annex's timeline, {"with": id of W's entry}, where it changed

One transaction holds them all. A rollback takes each annex to what it was with W's target; the intents of all are
written in one transaction too, so that a crash in between is finished by the next command.

What is no longer tracked stays in the checkpoints that hold it, and a rollback to one of them puts it back or reports
it. An annex whose last path is tracked no more gets an entry that says so, {"with": …, "ended": 1}, and is nobody's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat

from reprieve.app.paths import beneath_root
from reprieve.errors import Partial, Refused, ReprieveError, Usage
from reprieve.files import live_sqlite, native
from reprieve.files.snapshot import Limits, Snapshot
from reprieve.model.change import UNTRACKED, Change, Gap, classify
from reprieve.model.plan import Action, Plan, Report
from reprieve.model.timeline import CHECKPOINT, ROLLBACK, Draft, TimelineEntry, WorkspaceRecord
from reprieve.model.tracked import names_in
from reprieve.model.value import Value
from reprieve.model.window import field
from reprieve.model.window import opens as window_opened
from reprieve.rollback.execute import begin, conflict, finish
from reprieve.rollback.plan import excluded_for_now, moves_settings
from reprieve.store.chain import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reprieve.app.moves import Moves
    from reprieve.app.workspace import Workspace
    from reprieve.files.ignore import Excludes
    from reprieve.model.plan import Choices
    from reprieve.model.window import Window

_ENDED = '"ended":1'
_OPEN_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Annex(Value):
    """One tracked path: a folder, or some names in a folder."""

    ws: Workspace
    names: tuple[bytes, ...]  # none: the whole folder
    ended: frozenset[bytes] = frozenset()  # those of them that are tracked no more; b"": the whole folder

    def has_ended(self, inner: bytes) -> bool:
        """Whether a path in it is tracked no more."""
        return b"" in self.ended or inner.partition(b"/")[0] in self.ended

    def path(self, inner: bytes) -> bytes:
        """Where something in it is, absolute."""
        root = self.ws.root.rstrip(b"/")
        return root + b"/" + inner if inner else root

    def selects(self, inner: bytes) -> bool:
        """Whether it is tracked, and not merely the folder that it is in."""
        return not self.names or any(inner == name or inner.startswith(name + b"/") for name in self.names)

    def selected_at(self, *entries: TimelineEntry) -> Callable[[bytes], bool]:
        """The same of what was also tracked at each of these entries of its timeline, as far as they say."""
        said = [names for entry in entries if (names := self.ws.capture.names_at(entry)) is not None]
        return lambda inner: self.selects(inner) and all(inner.partition(b"/")[0] in names for names in said)


class Annexed(Value):
    """What an annex would do."""

    annex: Annex
    seen: Snapshot
    plan: Plan


def open_annexes(ws: Workspace, records: Sequence[WorkspaceRecord]) -> tuple[tuple[Annex, ...], tuple[Gap, ...]]:
    """The annexes of a workspace, and what is tracked and can't be opened: its folder is gone."""
    found = []
    lost: list[Gap] = []
    for record in records:
        if f'"annex":"{ws.id}"' not in record.settings:
            continue
        names = tuple(os.fsencode(name) for name in json.loads(record.settings)["names"])
        try:
            fd = os.open(record.root, _OPEN_ROOT)
        except OSError as e:
            lost += _lost(record.root, names, e.strerror or str(e))
            continue
        found.append(_opened(ws, record, names, fd))
    return tuple(found), tuple(lost)


def _opened(
    ws: Workspace, record: WorkspaceRecord, names: tuple[bytes, ...], fd: int, ended: frozenset[bytes] = frozenset()
) -> Annex:
    from reprieve.app.workspace import Workspace

    inner = Workspace(
        record,
        store=ws.store,
        home=ws.home,
        root_fd=fd,
        config=ws.config,
        limits=Limits(_excludes(ws, names), ws.config.max_file_size, only=frozenset(names)),
        reporter=ws.reporter,
        clock=ws.clock,
    )
    return Annex(inner, names, ended)


def _excludes(ws: Workspace, names: Sequence[bytes]) -> Excludes | None:
    """What is left out in a tracked folder; never that itself, whatever it is called."""
    if not ws.config.exclude:
        return None
    from reprieve.files.ignore import Excludes

    return Excludes((*ws.config.exclude, *(f"!/{_literally(os.fsdecode(name))}" for name in names)))


def _literally(name: str) -> str:
    """As a pattern that means just this name."""
    return "".join(f"\\{c}" if c in "\\*?[ " else c for c in name)


def _lost(root: bytes, names: Sequence[bytes], why: str, *, word: str = "tracked, but") -> list[Gap]:
    reason = f"{word} its folder '{os.fsdecode(root)}' cannot be opened: {why}"
    return [Gap(_join(root, name), reason) for name in names or (b"",)]


def look_all(ws: Workspace) -> tuple[list[tuple[Annex, Snapshot]], tuple[Gap, ...]]:
    """What each annex is now, kept in the store; and what of all that is tracked could not be protected."""
    found: list[tuple[Annex, Snapshot]] = []
    gaps = list(ws.lost)
    for annex in ws.annexes:
        if not os.fstat(annex.ws.root_fd).st_nlink:  # deleted since we opened it
            gaps += _lost(annex.ws.root, annex.names, os.strerror(errno.ENOENT))
            continue
        seen = annex.ws.capture.look(keep=True)
        found.append((annex, seen))
        gaps += [gap.replace(path=annex.path(gap.path)) for gap in seen.gaps if annex.selects(gap.path)]
    return found, tuple(gaps)


def track(ws: Workspace, paths: Sequence[str]) -> list[str]:
    """Track absolute paths from the next checkpoint on; what is tracked now, whole."""
    for path in paths:
        for named in _with_target(path):
            for part in _with_parts(os.fsencode(named)):
                _track_one(ws, part)
    return tracked(ws)


def untrack(ws: Workspace, paths: Sequence[str]) -> list[str]:
    """Track these no longer, nor the logs of a database that is among them. Checkpoints that hold them keep them.

    Only for a person: front ends refuse it inside an agent's process tree (`persons.need_person`).
    """
    with ws.store.lock(ws.id):
        wanted = {os.fsencode(path) for path in paths}
        wanted.update(path for path in map(os.fsencode, tracked(ws)) if live_sqlite.owner_of(path) in wanted)
        unknown = wanted - set(map(os.fsencode, tracked(ws)))
        if unknown:
            raise Usage(f"'{os.fsdecode(sorted(unknown)[0])}' is not tracked", hints=["see what is: reprieve track"])
        names = ", ".join(os.fsdecode(path) for path in sorted(wanted))
        with ws.store.transaction():
            main = ws.checkpoint(f"stop tracking {names}").entry  # holds them once more
            for record in _records(ws):
                _untrack_in(ws, record, wanted, main)
        return tracked(ws)


def _untrack_in(ws: Workspace, record: WorkspaceRecord, wanted: set[bytes], main: TimelineEntry) -> None:
    settings = json.loads(record.settings)
    is_whole = not settings["names"] and record.root in wanted
    left = [name for name in settings["names"] if _join(record.root, os.fsencode(name)) not in wanted]
    if left == settings["names"] and not is_whole:
        return
    settings["names"] = left
    if not left:
        settings["annex"] = ""  # nobody's any more; its entries stay where they are
    ended = "" if left else f",{_ENDED}"
    draft = Draft(CHECKPOINT, main.created_at, main.actor, main.label, data=f'{{"with":"{main.id}"{ended}}}')
    for annex in ws.annexes:
        if annex.ws.id == record.id:
            # from this checkpoint on it is not held, also where this is the latest one
            capture = _opened(ws, record, tuple(map(os.fsencode, left)) or annex.names, annex.ws.root_fd).ws.capture
            capture.record(capture.look(keep=True), draft)
    ws.store.save_workspace(record.replace(settings=_text(settings)))


def tracked(ws: Workspace) -> list[str]:
    """Absolute paths, sorted."""
    found = []
    for record in _records(ws):
        names = json.loads(record.settings)["names"]
        found += [os.fsdecode(_join(record.root, os.fsencode(name))) for name in names or [""]]
    return sorted(found)


def record_all(
    annexes: Sequence[tuple[Annex, Snapshot]],
    main: TimelineEntry,
    *,
    actor: str,
    opens: Window | None,
    closes: str,
    left: tuple[tuple[int, int], ...],
) -> None:
    """Entries on the annexes' timelines that belong to the workspace's entry; inside its transaction.

    `actor`: who made what changed, where that is known better than the windows tell.
    """
    for annex, seen in annexes:
        capture = annex.ws.capture
        if not (is_news(annex, seen) or opens or closes):
            continue
        draft = Draft(CHECKPOINT, main.created_at, actor, main.label, step=main.step, data=f'{{"with":"{main.id}"}}')
        capture.record(seen, draft, opens=opens, closes=closes, left=left)


def changed_in(annexes: Sequence[tuple[Annex, Snapshot]]) -> int:
    """How many tracked paths a person would call changed."""
    return sum(
        seen.changed
        if seen.changes is None
        else sum(1 for path, *states in seen.changes if annex.selects(path) and classify(*states))
        for annex, seen in annexes
    )


def is_news(annex: Annex, seen: Snapshot) -> bool:
    """Whether its newest entry does not say it yet: a change, or which names are looked at."""
    capture = annex.ws.capture
    tip = capture.timeline.tip()
    return bool(seen.changed) or tip is None or (capture.names_at(tip) or frozenset()) != capture.limits.only


def position(ws: Workspace, annex: Annex, target: TimelineEntry) -> TimelineEntry | None:
    """The annex's entry that belongs to an entry of the workspace; None if it was not tracked then."""
    return _position(ws, annex.ws.id, target)


def _position(ws: Workspace, annex: str, target: TimelineEntry) -> TimelineEntry | None:
    found = None
    for entry in ws.store.timeline(annex).after(0):
        main = ws.timeline.get(field(entry.data, "with"))
        if main is None:
            continue
        if main.seq > target.seq:
            break
        found = entry if _ENDED not in entry.data else None
    return found


def had_windows(ws: Workspace, target: TimelineEntry) -> bool:
    """Whether anybody worked in windows since an entry: what is no longer tracked has no record of them."""
    return any(window_opened(entry.data) for entry in (target, *ws.timeline.after(target.seq)))


def changes(ws: Workspace, since: TimelineEntry, until: TimelineEntry | None = None) -> tuple[list[Change], list[Gap]]:
    """What changed in tracked paths between two entries of the workspace, or since one; with their gaps now."""
    found: list[Change] = []
    gaps = list(ws.lost)
    for annex in ws.annexes:
        at, end = position(ws, annex, since), position(ws, annex, until) if until is not None else None
        if at is None or (until is not None and end is None):
            continue
        inner = annex.ws.status(at.id) if end is None else annex.ws.diff(at.id, end.id)
        selects = annex.selected_at(at, end or at)
        found += [c.replace(path=annex.path(c.path)) for c in inner.changes if selects(c.path)]
        gaps += [g.replace(path=annex.path(g.path)) for g in inner.gaps if annex.selects(g.path)]
    return found, gaps


def plan_all(
    ws: Workspace, make: Callable[[Moves, Annex], Plan | None], main: Plan, *, keep: bool
) -> tuple[list[Annexed], list[Gap]]:
    """What each annex would do. `make` gives None where there is nothing to do with it."""
    from reprieve.app.moves import Moves

    planned: list[Annexed] = []
    gaps = list(ws.lost)
    annexes = list(ws.annexes)
    target = ws.timeline.get(main.target) if main.kind == ROLLBACK else None
    if target is not None:
        former, more = _former(ws, target)
        gaps += more
        again = {annex.ws.id for annex in former}
        annexes = [*(annex for annex in annexes if annex.ws.id not in again), *former]
    for annex in annexes:
        annex.ws._recover()
        seen = annex.ws.capture.look(keep=keep)
        plan = make(Moves(annex.ws, seen), annex)
        if plan is None:
            names = annex.names or (b"",)
            gaps += [Gap(annex.path(name), UNTRACKED) for name in names if not annex.has_ended(name)]
            continue
        if annex.ended:
            plan = _reported(annex, plan)
        if plan.actions or plan.conflicts or plan.kept or plan.not_undone:
            planned.append(Annexed(annex, seen, plan))
    return planned, gaps


def _reported(annex: Annex, plan: Plan) -> Plan:
    """The plan of paths that are tracked no more: what stays is not undone. Nobody knows who changed it."""
    why = "no longer tracked, so who changed it is not known; put it back: --everything"
    return plan.replace(
        kept=tuple(k for k in plan.kept if not annex.has_ended(k.path)),
        not_undone=(*plan.not_undone, *(Gap(k.path, why) for k in plan.kept if annex.has_ended(k.path))),
    )


def _former(ws: Workspace, target: TimelineEntry) -> tuple[tuple[Annex, ...], list[Gap]]:
    """Annexes with paths that a checkpoint holds and that are tracked no more; those whose folder can't be opened."""
    for annex in ws.former or ():
        os.close(annex.ws.root_fd)
    ws.former = ()
    lost: list[Gap] = []
    now = [os.fsencode(path) for path in tracked(ws)]
    for record in ws.store.workspaces():
        ended = {name for name in _held(ws, record, target) if not _is_among(_join(record.root, name), now)}
        if not ended:
            continue
        try:
            fd = os.open(record.root, _OPEN_ROOT)
        except OSError as e:
            lost += _lost(record.root, sorted(ended - {b""}), e.strerror or str(e), word="no longer tracked, and")
            continue
        mine = next((annex.names for annex in ws.annexes if annex.ws.id == record.id), ())
        names = () if b"" in ended else tuple(sorted({*mine, *ended}))
        ws.former = (*ws.former, _opened(ws, record, names, fd, frozenset(ended)))  # closed with the workspace
    return ws.former, lost


def _held(ws: Workspace, record: WorkspaceRecord, target: TimelineEntry) -> frozenset[bytes]:
    """Names in a tracked folder that an entry of the workspace holds; b"": the whole folder."""
    if '"annex":' not in record.settings:
        return frozenset()
    tip = ws.store.timeline(record.id).tip()
    if '"annex":""' in record.settings and (tip is None or _ENDED not in tip.data):
        return frozenset()  # by an older version: since when it is tracked no more, nobody wrote down
    at = _position(ws, record.id, target)
    while at is not None and at.kind != CHECKPOINT:
        at = ws.store.timeline(record.id).at(at.seq - 1) if at.seq > 1 else None
    names = names_in(at.data) if at is not None else frozenset()
    if names is None:  # the whole folder; or of an older version, which did not write the names down
        is_whole = tip is not None and _ENDED in tip.data and names_in(tip.data) is None
        return frozenset((b"",)) if is_whole else frozenset()
    return names


def _is_among(path: bytes, tops: Sequence[bytes]) -> bool:
    return any(path == top or path.startswith(top.rstrip(b"/") + b"/") for top in tops)


def _track_again(ws: Workspace, one: Annexed) -> None:
    """Track what a rollback puts back, so that it can be redone and the next checkpoint holds it."""
    names = {action.path.partition(b"/")[0] for action in one.plan.actions} & one.annex.ended
    if b"" in one.annex.ended or names:
        record = next(record for record in ws.store.workspaces() if record.id == one.annex.ws.id)
        now = [*json.loads(record.settings)["names"], *map(os.fsdecode, names - {b""})]
        ws.store.save_workspace(record.replace(settings=_text({"annex": ws.id, "names": sorted(now)})))


def can_undo(ws: Workspace, choices: Choices) -> Callable[[frozenset[str]], bool]:
    """Whether steps of these keys have something in a tracked path that can be undone; looks once, when first asked."""
    from reprieve.app.moves import Moves

    looks: list[Moves] = []

    def has_part(keys: frozenset[str]) -> bool:
        if not looks:
            looks.extend(Moves(annex.ws, annex.ws.capture.look(keep=False)) for annex in ws.annexes)
        plans = (moves.undo_beside(keys, choices=choices) for moves in looks)
        return any(plan.has_more_than_times for plan in plans)

    return has_part


def joined(main: Plan, planned: Sequence[Annexed], gaps: Sequence[Gap]) -> Plan:
    """One plan for people: the annexes' paths are absolute."""
    if not planned and not gaps:
        return main
    planned = _after_settings(main, planned)
    actions: list[Action] = list(main.actions)
    conflicts, kept, undone = list(main.conflicts), list(main.kept), [*main.not_undone, *gaps]
    ids = [main.id]
    for one in planned:
        at = one.annex.path
        actions += [a.replace(path=at(a.path)) for a in one.plan.actions]
        conflicts += [c.replace(path=at(c.path)) for c in one.plan.conflicts]
        kept += [k.replace(path=at(k.path)) for k in one.plan.kept]
        undone += [g.replace(path=at(g.path)) for g in one.plan.not_undone]
        ids.append(one.plan.id)
    return main.replace(
        id=native.sha256(" ".join(ids).encode()).hex()[:16],
        actions=tuple(actions),
        conflicts=tuple(conflicts),
        kept=tuple(kept),
        not_undone=tuple(undone),
        is_idle=main.is_idle and all(one.plan.is_idle for one in planned),
    )


def move_all(ws: Workspace, main: Plan, seen: Snapshot, planned: Sequence[Annexed]) -> Report:
    """Move the workspace and its annexes. Raises Conflict or Refused before anything is touched.

    All are begun in one transaction: after a crash the next command finishes each of them.
    """
    blocked = [one for one in planned if one.plan.conflicts]
    if blocked or main.conflicts:
        raise conflict(joined(main, planned, ()))
    if not main.actions and not any(one.plan.actions for one in planned):
        report = Report("", kept=main.kept, not_undone=main.not_undone)
        for one in planned:
            report = _added(report, Report("", kept=one.plan.kept, not_undone=one.plan.not_undone), one.annex)
        return report
    now = ws.clock()
    with ws.store.transaction():
        first = begin(ws.capture, main, seen, new_id=new_id, now_ns=now, actor=ws.actor)
        others = [
            (
                one,
                begin(
                    one.annex.ws.capture,
                    one.plan,
                    one.seen,
                    new_id=new_id,
                    now_ns=now,
                    actor=ws.actor,
                    beside=first.intent,
                ),
            )
            for one in planned
            if one.plan.actions
        ]
        for one, _ in others:
            _track_again(ws, one)
    report = finish(ws.capture, first, now_ns=now)
    ws._keep_conflicts(main, report)
    for one, begun in others:
        try:
            done = finish(one.annex.ws.capture, begun, now_ns=now)
        except (ReprieveError, OSError) as e:
            raise Partial(
                f"the {main.kind} is done but for '{os.fsdecode(one.annex.path(b''))}': {e}",
                hints=["run the same command again when the reason is gone"],
            ) from e
        one.annex.ws._keep_conflicts(one.plan, done)
        report = _added(report, done, one.annex)
    for one in _after_settings(main, planned):
        if not one.plan.actions:  # nothing moves there, and what stays must be said all the same
            report = _added(report, Report("", kept=one.plan.kept, not_undone=one.plan.not_undone), one.annex)
    return report


def _after_settings(main: Plan, planned: Sequence[Annexed]) -> Sequence[Annexed]:
    """Said as it is where the excludes, which lie in the workspace and hold for its annexes too, are taken back."""
    if not moves_settings(main.actions):
        return planned
    return [
        one.replace(plan=one.plan.replace(not_undone=tuple(excluded_for_now(one.plan.not_undone)))) for one in planned
    ]


def _added(report: Report, more: Report, annex: Annex) -> Report:
    at = annex.path
    return report.replace(
        restored=(*report.restored, *map(at, more.restored)),
        deleted=(*report.deleted, *map(at, more.deleted)),
        kept=(*report.kept, *(k.replace(path=at(k.path)) for k in more.kept)),
        conflicts=(*report.conflicts, *(c.replace(path=at(c.path)) for c in more.conflicts)),
        marked=(*report.marked, *(c.replace(path=at(c.path)) for c in more.marked)),
        not_undone=(*report.not_undone, *(g.replace(path=at(g.path)) for g in more.not_undone)),
        held_open=(*report.held_open, *(g.replace(path=at(g.path)) for g in more.held_open)),
    )


def holder(ws: Workspace, start: str, given: str) -> tuple[Workspace, bytes]:
    """Whose history a path is in, and its name there: this workspace's, or that of what it tracks. Raises Usage."""
    try:
        return ws, beneath_root(ws.root, start, given)
    except Usage:
        for annex in ws.annexes:
            with contextlib.suppress(Usage):
                return annex.ws, beneath_root(annex.ws.root, start, given)
        raise


def _records(ws: Workspace) -> list[WorkspaceRecord]:
    return [record for record in ws.store.workspaces() if f'"annex":"{ws.id}"' in record.settings]


def _track_one(ws: Workspace, path: bytes) -> None:
    if path == ws.root or path.startswith(ws.root.rstrip(b"/") + b"/"):
        raise Usage(f"'{os.fsdecode(path)}' is in the workspace, whose checkpoints hold it already")
    home = os.path.realpath(os.fsencode(ws.home))
    if path == home or path.startswith(home + b"/") or home.startswith(path.rstrip(b"/") + b"/"):
        raise Refused(f"'{os.fsdecode(path)}' holds the store, which cannot protect itself")
    for other in map(os.fsencode, tracked(ws)):
        if path == other or path.startswith(other.rstrip(b"/") + b"/"):
            return  # it moves along already; twice it would be in its own way
        if other.startswith(path.rstrip(b"/") + b"/"):
            raise Usage(
                f"'{os.fsdecode(other)}' in it is tracked already",
                hints=[f"track the whole instead: reprieve track --remove {os.fsdecode(other)}, then this again"],
            )
    try:
        is_dir = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        is_dir = False
    root, name = (path, b"") if is_dir and not _can_come_back(path) else os.path.split(path)
    if is_dir and ws.root.startswith(path.rstrip(b"/") + b"/"):
        raise Usage(f"'{os.fsdecode(path)}' holds the workspace itself", hints=["go there and: reprieve init"])
    for record in _records(ws):
        names = json.loads(record.settings)["names"]
        if record.root == root and bool(names) == bool(name):
            if name and os.fsdecode(name) not in names:
                settings = _text({"annex": ws.id, "names": sorted([*names, os.fsdecode(name)])})
                ws.store.save_workspace(record.replace(settings=settings))
            return
    try:
        st = os.stat(root)
    except OSError as e:
        raise Usage(f"'{os.fsdecode(root)}' cannot be opened: {e.strerror}") from e
    settings = _text({"annex": ws.id, "names": [os.fsdecode(name)] if name else []})
    ws.store.save_workspace(WorkspaceRecord(new_id(), root, st.st_dev, st.st_ino, 0, ws.clock(), settings))


def _can_come_back(folder: bytes) -> bool:
    """Whether a folder is tracked as a name in the one above it: only from there can it be made again."""
    above = os.path.dirname(folder)
    if above == folder or os.stat(above).st_dev != os.stat(folder).st_dev:
        return False  # where something is mounted is not ours to make
    return os.access(above, os.R_OK | os.W_OK | os.X_OK)


def _with_target(path: str) -> list[str]:
    """A link is tracked together with what it leads to: dotfiles are often links into a repository."""
    folder, name = os.path.split(path)
    named = os.path.join(os.path.realpath(folder), name)
    return [named, os.path.realpath(named)] if os.path.islink(named) else [named]


def _with_parts(path: bytes) -> tuple[bytes, ...]:
    """A database is tracked together with its logs, there or not: without them it is not what it was."""
    try:
        st = os.lstat(path)
        if not stat.S_ISREG(st.st_mode):
            return (path,)
        mine = live_sqlite.descriptor_here(st.st_dev, st.st_ino)
        fd = mine if mine >= 0 else os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return (path,)  # not there, or not for us to read: then it is a gap
    try:
        is_database = live_sqlite.is_database(os.pread(fd, 16, 0))
    finally:
        if mine < 0:
            os.close(fd)
    return (path, *live_sqlite.sidecars(path)) if is_database else (path,)


def _text(settings: dict[str, object]) -> str:
    return json.dumps(settings, separators=(",", ":"))  # without spaces: it is also looked through as it is


def _join(root: bytes, name: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + name if name else root
