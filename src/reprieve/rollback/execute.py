"""Carry a plan out: safety checkpoint, write-ahead intent, move, record. The one place that moves the world back.

    look (content into the store) ─▶ plan ─▶ check ─▶ safety checkpoint + intent (one commit)
      ─▶ stage ─▶ apply ─▶ settle ─▶ entry, intent cleared (one commit)

Killed before the first commit: nothing happened. Killed after it: `recover` finishes the moves, or, if that is
impossible, takes them back.
"""

from __future__ import annotations

from reprieve.errors import Conflict, Partial, Refused, ReprieveError, StoreCorrupted, StoreFailed
from reprieve.files import ahead, tree
from reprieve.files.capture import Capture
from reprieve.files.restore import Restore
from reprieve.files.snapshot import Snapshot
from reprieve.model.actor import PERSON
from reprieve.model.change import classify
from reprieve.model.plan import Conflicted, Plan, Report
from reprieve.model.timeline import CHECKPOINT, PART, REDO, ROLLBACK, UNDO, Draft
from reprieve.model.value import Value
from reprieve.model.window import SAFETY
from reprieve.rollback.intent import Intent, decode_intent
from reprieve.rollback.outcome import Outcome, judge
from reprieve.store.behind import Behind
from reprieve.store.chain import damaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.model.timeline import TimelineEntry
    from reprieve.store.protocols import Buffer


class Begun(Value):
    """A move that is written down and not made yet."""

    plan: Plan
    seen: Snapshot
    restore: Restore
    intent: Intent
    head: TimelineEntry  # the safety checkpoint


def execute(
    capture: Capture, plan: Plan, seen: Snapshot, *, new_id: Callable[[], str], now_ns: int, actor: str = PERSON
) -> Report:
    """Carry out `plan`, made from `seen` under the workspace lock that is still held. `actor` gives the command."""
    if plan.conflicts:
        raise conflict(plan)
    if not plan.actions:
        return Report("", kept=plan.kept, not_undone=plan.not_undone)
    return finish(capture, begin(capture, plan, seen, new_id=new_id, now_ns=now_ns, actor=actor), now_ns=now_ns)


def begin(
    capture: Capture,
    plan: Plan,
    seen: Snapshot,
    *,
    new_id: Callable[[], str],
    now_ns: int,
    actor: str = PERSON,
    beside: Intent | None = None,
) -> Begun:
    """Check that nothing stands in the way, and write the intent down with the safety checkpoint.

    `beside` is the move of another tree that this one belongs to: both are begun in one transaction, so that after a
    crash both are finished.
    """
    operation, safety = new_id(), new_id()
    moves: tree.Delta = [(a.path, a.before, a.after) for a in plan.actions]
    capture.blobs.put(plan.contents)
    stored = capture.put_object(tree.pack_delta(moves))
    capture.blobs.start_flush()
    restore = _restore(capture, moves, seen.index, tree.STAGES + operation.encode())
    restore.prefetch()
    try:
        restore.check()
    except (OSError, Refused) as e:
        capture.blobs.flush()  # the next try will find it; and until then nobody has to wait for us
        if isinstance(e, Refused):
            raise
        raise Refused(f"the folder changes while it is looked at ({e.strerror}); nothing was touched") from e
    of = beside.operation if beside is not None else ""
    intent = Intent(
        operation, plan.kind, plan.target, plan.label, plan.of, safety, restore.stage_name, stored, of, actor
    )
    with capture.store.transaction():
        entry = capture.record(
            seen,
            Draft(
                CHECKPOINT,
                now_ns,
                actor="",
                label=f"before {plan.kind} to {plan.label or plan.target}",
                data=f'{SAFETY}{operation}"{_with(beside.safety if beside is not None else "")}}}',
                id=safety,
            ),
            keep_index=False,
        )
        capture.timeline.set_intent(intent.encode())
        if (head := capture.timeline.head()) is None or head.hash != entry.hash:
            # inside the transaction: where the timeline cannot be relied on, nothing is begun
            raise damaged(f"entry {entry.seq} was written and is not the newest")
    return Begun(plan, seen, restore, intent, head)


def finish(capture: Capture, begun: Begun, *, now_ns: int) -> Report:
    """Make the move that was begun."""
    plan, index, restore, intent, head = begun.plan, begun.seen.index, begun.restore, begun.intent, begun.head
    tree.trim(index, restore.moves)
    try:
        restore.prepare()
    except (OSError, ReprieveError) as e:
        restore.cancel()
        capture.timeline.set_intent(b"")
        if isinstance(e, ReprieveError):
            raise
        raise StoreFailed(f"the rollback could not be prepared ({e.strerror}); nothing was touched") from e
    try:
        restore.apply()
    except OSError as e:
        # the moves were taken back; had that failed too, Partial would have been raised and the intent kept
        capture.timeline.set_intent(b"")
        why = f"'{native_text(e.filename)}': {e.strerror}" if e.filename else e.strerror
        raise Refused(f"the rollback could not be carried out ({why}); everything is as it was before") from e
    try:
        report = _record(capture, intent, restore, index, head, now_ns)
    except (OSError, ReprieveError) as e:
        # everything is in its place but for the last touches: once more from the intent, as after a crash
        restore.make_room()
        capture.make_room()
        capture.reporter.note(f"finishing the {plan.kind} once more ({e})")
        again = recover(capture, now_ns=now_ns, head=head, index=index)
        if again is None and isinstance(e, StoreCorrupted):
            raise StoreCorrupted(f"{e.message}; the {plan.kind} was taken back", hints=e.hints) from e
        if again is None:
            raise Refused(f"the {plan.kind} could not be finished ({e}) and was taken back") from e
        report = again
    marked = {action.path: action for action in plan.actions if action.is_marked}
    return report.replace(
        kept=plan.kept,
        not_undone=plan.not_undone + report.not_undone,
        marked=tuple(Conflicted(at, marked[at].reason, marked[at].actor) for at in report.restored if at in marked),
    )


def recover(
    capture: Capture, *, now_ns: int, head: TimelineEntry | None = None, index: Buffer | None = None
) -> Report | None:
    """Finish what an interrupted operation began, or take it back. None if there was nothing to do.

    `head` is the safety checkpoint and `index` its tree, where the caller still has them.
    """
    data = capture.timeline.intent()
    if not data:
        return None
    intent = decode_intent(data)
    moves = tree.decode_delta(capture.object(intent.moves))
    head = head if head is not None else capture.timeline.head()
    assert head is not None  # the safety checkpoint was committed together with the intent
    index = index if index is not None else capture.tree_at(head.seq)
    restore = _restore(capture, moves, index, intent.stage, recover=True)
    try:
        restore.prepare()
        restore.apply()
        report = _record(capture, intent, restore, index, head, now_ns)
    except (OSError, ReprieveError) as forward:
        restore.make_room()
        back = _restore(capture, [(p, after, before) for p, before, after in moves], index, intent.stage, recover=True)
        try:
            back.prepare()
            back.apply()
            back.settle(lambda: None)
        except (OSError, ReprieveError):
            raise Partial(
                f"the {intent.kind} could be neither finished nor taken back now: {forward}",
                hints=["reprieve doctor", f"the state before it is checkpoint {intent.safety}"],
            ) from forward
        capture.timeline.set_intent(b"")
        capture.reporter.note(f"an interrupted {intent.kind} was taken back ({forward})")
        return None
    capture.reporter.note(f"an interrupted {intent.kind} to {intent.label or intent.target} was finished")
    for left in report.conflicts:
        capture.reporter.warn(f"'{native_text(left.path)}' was not moved: {left.reason}")
    return report


def conflict(plan: Plan) -> Conflict:
    """The error for a plan that cannot be carried out."""
    count = len(plan.conflicts)
    paths = "1 path is" if count == 1 else f"{count} paths are"
    first = native_text(plan.conflicts[0].path)
    if plan.kind == UNDO:
        what = f"{paths} needed by what came later" if plan.dependants else f"{paths} not the step's alone"
        hints = [
            "take the later steps along: the same command with --tail",
            "undo the rest and leave these as they are: --on-conflict keep",
        ]
    else:
        what = f"{paths} not as they were left" if count > 1 else f"{paths} not as it was left"
        hints = [f"see both sides: reprieve diff {plan.target} -- {first}"]
        if plan.kind == ROLLBACK:
            command = "the same command with" if plan.of == PART else f"reprieve rollback {plan.target}"
            hints.insert(0, f"keep those and take back the rest: {command} --on-conflict keep")
    return Conflict(
        f"{what}; nothing was touched",
        details=[f"{native_text(c.path)}  {c.reason}" for c in plan.conflicts],
        hints=hints,
        data={
            "conflicts": [native_text(c.path) for c in plan.conflicts],
            "reasons": {native_text(c.path): c.reason for c in plan.conflicts},
            "dependants": list(plan.dependants),
        },
    )


def _restore(capture: Capture, moves: tree.Delta, index: Buffer, stage: bytes, *, recover: bool = False) -> Restore:
    ahead.forget()  # what was seen of the tree is about to be wrong
    return Restore(
        capture.root_fd,
        moves,
        index=index,
        blobs=capture.blobs,
        stage_name=stage,
        reporter=capture.reporter,
        recover=recover,
        cross_mounts=capture.limits.cross_mounts,
        attic=capture.attic,
    )


def _record(
    capture: Capture, intent: Intent, restore: Restore, index: Buffer, head: TimelineEntry, now_ns: int
) -> Report:

    def look() -> tuple[tree.Delta, Outcome]:
        noted = [move for move in restore.moves if move[0] in restore.done]
        restore.done.clear()
        return noted, judge(capture.root_fd, noted, index, in_place=True)

    noted, outcome = restore.settle(meanwhile=look)
    done = outcome.done
    files = sum((a is not None and a.kind != b"d") - (b is not None and b.kind != b"d") for _, b, a in done)
    size = sum((a.size if a else 0) - (b.size if b else 0) for _, b, a in done)
    with Behind(in_thread=True, elsewhere=True) as saving, capture.store.transaction():
        is_whole = done is noted and len(done) == len(restore.moves)  # then what was done is what the intent says
        id = intent.moves if is_whole else capture.put_object(tree.pack_delta(done))
        capture.blobs.flush()
        entry = capture.timeline.append(
            Draft(
                intent.kind,
                now_ns,
                actor=intent.actor,
                label=f"{intent.kind} to {intent.label or intent.target}",
                delta=id,
                files=head.files + files,
                size=head.size + size,
                changed=sum(1 for _, before, after in done if classify(before, after)),
                data=f'{{"target":"{intent.target}","safety":"{intent.safety}","of":"{intent.of}"{_with(intent.beside)}}}',
                id=intent.operation,
            )
        )
        capture.timeline.set_intent(b"")
        is_beside = not outcome.places and not restore.recover and capture.has_room(len(outcome.index))
        if is_beside:
            # if the commit fails, it stands for no entry, and nobody uses it
            saving.start(lambda: capture.save(outcome.index, entry), lambda _: None)
    if not is_beside:
        capture.save(outcome.after(), entry)  # now the tree before is not needed any more
    return Report(
        entry.id,
        restored=tuple(path for path, _, after in done if after is not None),
        deleted=tuple(path for path, _, after in done if after is None),
        conflicts=(*restore.conflicts, *(c for c in outcome.conflicts if not restore.is_index(c.path))),
        not_undone=tuple(restore.lost),
        held_open=tuple(restore.held),
        safety_checkpoint=intent.safety,
        redo=f"reprieve rollback {intent.safety}" if intent.kind == REDO else "reprieve redo",
    )


def _with(id: str) -> str:
    return f',"with":"{id}"' if id else ""


def native_text(path: bytes) -> str:
    """A path for people."""
    return path.decode("utf-8", "surrogateescape") or "."
