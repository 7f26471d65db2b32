"""Find the step after which a command fails, by trying it on copies of earlier checkpoints.

    good ─ · ─ · ─ · ─ · ─ bad        both ends are tried first; then the middle of what is in question,
                │                     until a good point and a bad one are neighbours
               try

The tree itself is only read, once, if its present state is one of the ends.
"""

from __future__ import annotations

import os

from reprieve.app import probe
from reprieve.errors import BadRef, Partial, Usage
from reprieve.files.scratch import Scratch
from reprieve.model.timeline import CHECKPOINT, MOVES, TimelineEntry
from reprieve.model.value import Value
from reprieve.model.window import SAFETY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.model.change import Change, Gap

GOOD, BAD, SKIPPED = "good", "bad", "skipped"
NOW = f'{SAFETY}bisect"}}'  # the present as an end of a search; no checkpoint that `latest` could mean


class Probe(Value):
    """One run of the command at one point."""

    entry: TimelineEntry
    word: str  # good, bad, skipped
    exit_code: int


class Search(Value):
    """What is about to be searched."""

    good: TimelineEntry
    bad: TimelineEntry
    steps: int
    runs: int  # at most, if every point can be tested


class Found(Value):
    """The first bad step is one of `suspects`: one, unless steps in between could not be tested."""

    good: TimelineEntry  # the last point before them where the command succeeds
    suspects: tuple[TimelineEntry, ...]
    changes: tuple[Change, ...]  # from `good` to the last suspect
    probes: tuple[Probe, ...]


class Watching:
    """Told how the search goes. This one shows nothing."""

    def begins(self, search: Search) -> None:
        """The ends are known."""

    def tried(self, result: Probe) -> None:
        """One more point was tried."""


def bisect(
    ws: Workspace,
    argv: Sequence[str],
    *,
    good: str | None = None,
    bad: str | None = None,
    where: bytes = b"",
    is_silent: bool = False,
    watching: Watching | None = None,
) -> Found:
    """Search between good (default: the oldest checkpoint) and bad (default: now).

    The command runs in `where` (relative to the root) of a scratch copy: 0 is good, 125 cannot be tested, 1 to 127 is
    bad, anything else stops the search. Raises Usage if the ends are not good and bad, Partial if it was stopped.
    """
    watching = watching or Watching()
    points = _points(ws, *_ends(ws, good, bad))
    last = len(points) - 1
    watching.begins(Search(points[0], points[last], last, 2 + (last - 1).bit_length()))
    scratch = Scratch(ws.root, blobs=ws.store.blobs)
    try:
        tried = _Trying(ws, scratch, argv, where, watching, is_silent=is_silent)
        if tried(points[last]) != BAD:
            raise _not_bad(points[last], tried.probes[-1], where)
        if tried(points[0]) != GOOD:
            raise _not_good(points[0], tried.probes[-1], where)
        before, after = narrow(last, lambda at: tried(points[at]))
    finally:
        problem = probe.remove(scratch)
        if problem:
            ws.reporter.warn(problem)
    changes = ws.diff(points[before].id, points[after].id).changes
    return Found(points[before], tuple(points[before + 1 : after + 1]), changes, tuple(tried.probes))


def way_back(ws: Workspace, found: Found) -> str:
    """The command that takes the first bad step back; "" if it isn't known, or what was there before was pruned."""
    if len(found.suspects) != 1:
        return ""
    from reprieve.app.steps import find_step, must_be_kept

    try:
        must_be_kept(ws.timeline, find_step(ws.timeline, found.suspects[0].id, now_ns=ws.clock()))
    except BadRef:
        return ""
    return f"reprieve undo {found.suspects[0].id}"


def narrow(last: int, test: Callable[[int], str]) -> tuple[int, int]:
    """(a good point, the next bad one) where 0 is good and `last` bad; between them only what cannot be tested."""
    good, bad, skipped = 0, last, set()
    while open := [at for at in range(good + 1, bad) if at not in skipped]:
        middle = (good + bad) // 2
        at = min(open, key=lambda at: abs(at - middle))
        verdict = test(at)
        if verdict == GOOD:
            good = at
        elif verdict == BAD:
            bad = at
        else:
            skipped.add(at)
    return good, bad


class _Trying:
    """Brings the copy to a point, runs the command there, and judges its exit code."""

    def __init__(
        self,
        ws: Workspace,
        scratch: Scratch,
        argv: Sequence[str],
        where: bytes,
        watching: Watching,
        *,
        is_silent: bool,
    ) -> None:
        self.ws, self.scratch, self.argv, self.where, self.watching = ws, scratch, argv, where, watching
        self.is_silent = is_silent
        self.probes: list[Probe] = []
        self._told: set[Gap] = set()
        self.env, leading = probe.environment(scratch, ws.root, os.environ)
        if leading:
            ws.reporter.note(f"the command may leave the copy: {', '.join(leading)} name the folder itself")

    def __call__(self, entry: TimelineEntry) -> str:
        with self.ws.store.lock(self.ws.id):
            target = self.ws.capture.tree_at(entry.seq)
            missing = self.scratch.fill(target, forgotten=self.ws.capture.forgotten())
        for gap in missing:
            if gap not in self._told:
                self._told.add(gap)
                self.ws.reporter.note(f"not in the copy as it was: '{os.fsdecode(gap.path)}' ({gap.reason})")
        code = probe.run_in(self.scratch, self.argv, where=self.where, env=self.env, is_silent=self.is_silent)
        if code >= 128:
            ended = f"was ended by signal {code - 128}" if code < 192 else f"ended with {code}"
            raise Partial(
                f"the command {ended} at {entry.id}, which is neither good nor bad; the search was stopped",
                hints=[f"see it there: reprieve diff {entry.id}", "exit 125 means: this point cannot be tested"],
                data={"at": entry.id, "exit_code": code, "runs": len(self.probes) + 1},
            )
        word = {0: GOOD, probe.CANNOT_TEST: SKIPPED}.get(code, BAD)
        self.probes.append(Probe(entry, word, code))
        self.watching.tried(self.probes[-1])
        return word


def _ends(ws: Workspace, good: str | None, bad: str | None) -> tuple[TimelineEntry, TimelineEntry]:
    if bad is None:
        # taken first: a time or `latest` as GOOD must not depend on it, and it is none that `latest` could mean
        newest = ws.checkpoint("the present, for bisect", data=NOW, only_changes=True).entry
    else:
        newest = ws.resolve(bad)
    oldest = ws.resolve(good) if good is not None else _oldest(ws)
    if oldest.seq >= newest.seq:
        raise Usage(
            f"GOOD ({oldest.id}) is not older than BAD ({newest.id}); there is nothing between them",
            hints=["see the order: reprieve log"],
        )
    return oldest, newest


def _oldest(ws: Workspace) -> TimelineEntry:
    for entry in ws.timeline.after(0):
        if _has_tree(entry):
            return entry
    raise BadRef("there is no checkpoint yet", hints=["reprieve checkpoint"])


def _has_tree(entry: TimelineEntry) -> bool:
    return entry.kind in (CHECKPOINT, *MOVES) and not entry.is_pruned


def _points(ws: Workspace, good: TimelineEntry, bad: TimelineEntry) -> list[TimelineEntry]:
    """GOOD and every later entry up to BAD at which the tree is another than at the one before."""
    found, is_hidden = [good], False
    for entry in ws.timeline.after(good.seq):
        if entry.seq > bad.seq:
            break
        if entry.is_pruned:
            is_hidden = True  # what it changed belongs to the next one that was kept
        elif _has_tree(entry) and (entry.delta or is_hidden):
            found.append(entry)
            is_hidden = False
    if len(found) == 1:
        raise Usage(f"nothing changed between {good.id} and {bad.id}", hints=["see what there is: reprieve log"])
    return found


def _not_bad(entry: TimelineEntry, last: Probe, where: bytes) -> Usage:
    if last.word == SKIPPED:
        return _untestable("BAD", entry, where)
    return Usage(
        f"the command succeeds at BAD ({entry.id}); there is nothing to find",
        hints=["it runs in a copy: what it needs from outside the folder must be there as well"],
    )


def _not_good(entry: TimelineEntry, last: Probe, where: bytes) -> Usage:
    if last.word == SKIPPED:
        return _untestable("GOOD", entry, where)
    why = {126: ": it cannot be executed there", 127: ": there is no such command there"}.get(last.exit_code, "")
    return Usage(
        f"the command fails at GOOD ({entry.id}) already, with exit code {last.exit_code}{why}",
        hints=["name a checkpoint at which it succeeds: reprieve bisect GOOD -- CMD"],
    )


def _untestable(which: str, entry: TimelineEntry, where: bytes) -> Usage:
    reason = f" (is '{os.fsdecode(where)}' there?)" if where else ""
    return Usage(f"the command cannot be tested at {which} ({entry.id}){reason}", hints=["name another end"])
