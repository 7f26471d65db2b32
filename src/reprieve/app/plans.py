"""Plans of agents: steps with ids and dependencies, each a unit that is kept or taken back whole.

    with ws.plan("migrate") as plan:
        with plan.step("schema"):                    window of the level between turn and call
            ...
        with plan.step("data", after=("schema",)):   stands on it
            ...

A failing step is taken back by policy, its files and its effects, and the steps beside it stay. `replan` takes back a
step and all that stands on it, and says so in words for the planner. What a plan has done is read off the timeline
(`plan_story`), so another process goes on where one died.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from reprieve.app.guard import Block, Guard, Step, in_words, open_step, seal
from reprieve.app.plan_story import (
    ACCEPTED,
    BROKEN,
    DONE,
    END,
    FINISHED,
    KEPT,
    OPEN,
    RUNNING,
    TAKEN_BACK,
    UNDONE,
    PlanStep,
    Run,
    Story,
    find_run,
    plan_json,
)
from reprieve.app.steps import Step as Undoable
from reprieve.app.steps import with_inner
from reprieve.app.workspace import Workspace
from reprieve.errors import Refused, ReprieveError, Usage
from reprieve.model.actor import of_session, plain
from reprieve.model.plan import Report
from reprieve.model.value import Value
from reprieve.store.chain import new_id

ROLLBACK, KEEP, ASK = ON_FAILURE = ("rollback", "keep", "ask")


class TakenBack(Value):
    """Steps of a plan that were taken back. As text it is for a planner to read."""

    plan: str
    steps: tuple[str, ...]
    report: Report
    why: str = ""
    broken: tuple[str, ...] = ()  # of them: whose process died, so that nobody knows when they ended

    @property
    def is_partial(self) -> bool:
        """Something that should have been taken back was not; the text names it."""
        return self.report.is_partial

    def __str__(self) -> str:
        report = self.report
        lines = [f"Taken back of plan '{self.plan}': {', '.join(self.steps)}"]
        lines += [f"because {self.why}"] if self.why else []
        lines += [f"- {_text(path)}: as it was before" for path in report.restored if path]
        lines += [f"- {_text(path)}: deleted, as it was not there before" for path in report.deleted]
        lines += [f"- {e.description or e.id}: {e.state}" for e in report.effects if e.is_undone]
        left = [f"- {e.description or e.id}: {e.state}: {e.detail}" for e in report.effects if not e.is_undone]
        left += [f"- {_text(conflict.path)}: {conflict.reason}" for conflict in (*report.conflicts, *report.marked)]
        left += [f"- {_text(gap.path)}: {gap.reason}" for gap in report.not_undone]
        kept = [f"- {_text(kept.path)}: {kept.reason}" for kept in report.kept]
        if len(lines) == 1 + bool(self.why) and not left:
            lines.append("there was nothing to move")
        lines += ["Not taken back:", *left] if left else []
        lines += ["Left as it is:", *kept] if kept else []
        if self.broken and (report.restored or report.deleted):
            lines.append(f"The process of {', '.join(self.broken)} died: what a person changed from then to the next")
            lines.append(f"checkpoint can't be told from its work and was taken back too; see {report.redo}")
        return "\n".join(lines)


class AgentPlan:
    """A plan under way; a context manager, sync and async. Made by `Workspace.plan`. For any thread and task."""

    def __init__(self, ws: Workspace, name: str, *, on_failure: str = "", session: str = "", agent: str = "python"):
        self._ws, self.name = ws, _named(name, "plan")
        self._policy = _policy(on_failure or ws.config.plan_on_failure)
        self._who = of_session(plain(agent), session)
        self._session, self._agent = session, agent
        with ws.store.lock(ws.id):
            self._story = find_run(ws.timeline, name)
        self._run = self._story.run if self._story is not None else new_id()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            import asyncio

            await asyncio.to_thread(self.finish)

    # -- what there is

    @property
    def steps(self) -> dict[str, str]:
        """What became of each step, in order: running, broken off, done, failed, taken back, kept."""
        return {step.name: step.state for step in self._read().steps}

    def is_done(self, step: str) -> bool:
        """Whether a step ended well and is still there: what goes on after a restart need not do it again."""
        return self.steps.get(step) in (DONE, ACCEPTED)

    @property
    def broken(self) -> tuple[str, ...]:
        """Steps whose process died: `replan` takes one back, `keep` accepts it."""
        return tuple(name for name, state in self.steps.items() if state == BROKEN)

    # -- steps

    def step(
        self, name: str, *, after: Sequence[str] | None = None, writes: Sequence[str] = (), on_failure: str = ""
    ) -> PlanBlock:
        """A step, for `with` and `async with`: a checkpoint, and a window until the block ends.

        `after`: the steps that it stands on (default: all that are done; none: `()`). `writes`: the only files,
        folders or globs that it changes; steps at the same time need that to be told apart. `on_failure`: rollback,
        keep or ask, if other than the plan's.
        """
        if isinstance(after, str) or isinstance(writes, str):
            raise Usage("after and writes are lists of names", hints=[f'plan.step("{name}", after=("schema",))'])
        return PlanBlock(self, _named(name, "step"), after, tuple(writes), _policy(on_failure or self._policy))

    def replan(self, from_step: str, *, why: str = "") -> TakenBack:
        """Take back a step and all that stand on it, to plan anew from there; the answer is for the planner.

        Files and effects; what others did stays. Raises Conflict or Refused with nothing touched.
        """
        with self._ws.store.lock(self._ws.id):
            run = self._read()
            first = self._known(run, from_step)
            if first.state == ACCEPTED:
                raise Refused(f"step '{from_step}' was kept; nothing was touched")
            every = [step for step in (first, *run.dependants(from_step)) if self._is_to_take_back(step)]
            at_work = [step.name for step in every if step.state == RUNNING]
            if at_work:
                raise Refused(f"step '{at_work[0]}' is still at work; nothing was touched", hints=["let it end first"])
            return self._take_back(every, why)

    def keep(self, step: str) -> None:
        """Accept a step: the inverses of its effects are retired, and no `replan` takes it back."""
        from reprieve.app import effects

        with self._ws.store.lock(self._ws.id):
            run = self._read()
            found = self._known(run, step)
            if found.state in (RUNNING, TAKEN_BACK):
                raise Refused(f"step '{step}' is {found.state}; nothing was kept")
            effects.keep(self._ws, f"call:{found.window.id}")
            self._note(f"kept {self._title(step)}", {"at": KEPT, "windows": [found.window.id]})

    def finish(self) -> None:
        """The plan has ended well; the next one of its name begins anew. A block does this at its end."""
        with self._ws.store.lock(self._ws.id):
            run = self._read()
            if run.id:
                self._note(f"plan {self.name} finished", {"at": FINISHED})

    # -- inside

    def _read(self) -> Run:
        with self._ws.store.lock(self._ws.id):
            return self._story.read(self._ws.timeline) if self._story is not None else Run(self.name)

    def _known(self, run: Run, name: str) -> PlanStep:
        found = run.step(name)
        if found is None:
            known = ", ".join(step.name for step in run.steps) or "it has none yet"
            raise Usage(f"plan '{self.name}' has no step '{name}'", details=[f"its steps: {known}"])
        return found

    def _is_to_take_back(self, step: PlanStep) -> bool:
        """Its files may be back by somebody's hand, or an inverse have failed, and its effects still stand."""
        if step.state != TAKEN_BACK:
            return step.state != ACCEPTED
        if not os.path.exists(os.path.join(self._ws.home, "effects.db")):
            return False
        from reprieve.app.effects import journal_of

        windows = with_inner(self._ws.timeline, frozenset((step.window.id,)), step.opened.seq)
        with journal_of(self._ws) as journal:
            return any(True for _ in journal.effects(windows=tuple(windows), is_open=True))

    def _title(self, step: str) -> str:
        return f"{self.name}/{step}"

    def _fields(self, more: Mapping[str, object]) -> dict[str, object]:
        if self._story is None:  # it begins here
            tip = self._ws.timeline.tip()
            self._story = Story(self.name, self._run, tip.seq if tip is not None else 0)
        return {"name": self.name, "run": self._run, "since": self._story.since, **more}

    def _note(self, label: str, more: Mapping[str, object]) -> None:
        self._ws.checkpoint(label, data=f"{{{plan_json(self._fields(more))}}}")

    def _take_back(self, steps: Sequence[PlanStep], why: str) -> TakenBack:
        """All of these steps at once, or none. Under the workspace's lock."""
        report = Report("")
        if steps:
            oldest, newest = steps[0], steps[-1]
            whole = Undoable(
                newest.window.id,
                ", ".join(self._title(step.name) for step in steps),
                oldest.opened.seq,
                oldest.opened,
                newest.sealed if len(steps) == 1 else None,
                frozenset(step.window.id for step in steps),
            )
            done = self._ws.undo(whole, effects="undo")[1]
            assert done is not None
            report = done
            marks = {"at": UNDONE, "windows": [step.window.id for step in steps], "operation": report.operation}
            self._note(f"took back {whole.name}", marks)
        broken = tuple(step.name for step in steps if step.state == BROKEN)
        return TakenBack(self.name, tuple(step.name for step in steps), report, why, broken)


class PlannedStep(Step):
    """A step of a plan while it is done, and after."""

    def __init__(self, plan: AgentPlan, made: Step, name: str) -> None:
        super().__init__(made.before, made.window)
        self._plan = plan
        self.step = name
        self.report: TakenBack | None = None  # if it failed and was taken back
        self.failure: ReprieveError | None = None  # if it failed and could not be
        self.reason = ""

    def fail(self, reason: str) -> None:
        """Have the step count as failed when its block ends, though nothing is raised."""
        self.reason = reason or "it failed"

    def guard(
        self, *, kind: str = "tool", name: str = "", arguments: Mapping[str, object] | None = None, call: str = ""
    ) -> Guard:
        """A call inside this step, with a checkpoint of its own; also from threads that the step started."""
        plan = self._plan
        return Guard(
            plan._ws,
            kind=kind,
            name=name,
            arguments=arguments,
            call=call,
            session=plan._session,
            agent=plan._agent,
            parent=self.window.id,
        )


class PlanBlock(Block):
    """The block of a step. Made by `AgentPlan.step`."""

    def __init__(
        self, plan: AgentPlan, name: str, after: Sequence[str] | None, writes: tuple[str, ...], policy: str
    ) -> None:
        super().__init__(plan._ws)
        self._plan, self._name, self._wanted, self._writes, self._on_failure = plan, name, after, writes, policy

    if TYPE_CHECKING:

        def __enter__(self) -> PlannedStep: ...
        async def __aenter__(self) -> PlannedStep: ...

    def _open(self) -> Step:
        title = self._plan._title(self._name)
        made = open_step(self._ws, self._plan._who, title, label=title, more=self._begin, writes=self._writes)
        return PlannedStep(self._plan, made, self._name)

    def _begin(self) -> str:
        """Fields for the checkpoint that opens it. Raises if it must not begin now."""
        run = self._plan._read()
        known = run.step(self._name)
        if known is not None and known.state not in (TAKEN_BACK,):
            raise Refused(
                f"step '{self._name}' of plan '{self._plan.name}' is {known.state}; nothing was run",
                hints=[
                    f"to do it again take it back first: plan.replan('{self._name}')",
                    f"or accept it as it is: plan.keep('{self._name}'); plan.is_done('{self._name}') is then true",
                ],
            )
        done = [step.name for step in run.steps if step.state in (DONE, ACCEPTED)]
        after = done if self._wanted is None else list(self._wanted)
        for name in after:
            if name not in done:
                state = self._plan._known(run, name).state
                raise Refused(f"step '{self._name}' stands on '{name}', which is {state}; nothing was run")
        return plan_json(self._plan._fields({"step": self._name, "after": after, "at": OPEN}))

    def _seal(self, step: Step, *, is_failed: bool) -> None:
        assert isinstance(step, PlannedStep)
        is_failed = is_failed or bool(step.reason)
        with self._ws.store.lock(self._ws.id):
            told: dict[str, object] = {"step": self._name, "at": END, "failed": is_failed}
            fields = plan_json(self._plan._fields(told))
            seal(self._ws, step, more=" (failed)" if is_failed else "", fields=fields)

    def _after(self, step: Step, error: BaseException | None) -> None:
        assert isinstance(step, PlannedStep)
        why = step.reason or (f"{type(error).__name__}: {error}" if error is not None else "")
        if not why:
            return
        said = self._decide(step, why)
        if not said:
            _note(error, f"step '{step.step}' failed and what it did is kept (on_failure)")
            return
        try:
            with self._ws.store.lock(self._ws.id):
                run = self._plan._read()
                step.report = self._plan._take_back([self._plan._known(run, step.step)], said)
        except ReprieveError as failure:
            step.failure = failure
            _note(error, f"step '{step.step}' was NOT taken back: {in_words(failure)}")
            if error is None:
                raise
        else:
            _note(error, str(step.report))

    def _decide(self, step: PlannedStep, why: str) -> str:
        """Why it is taken back; "" if it is kept."""
        if self._on_failure == KEEP:
            return ""
        if self._on_failure == ROLLBACK:
            return why
        question = f"Step '{step.step}' of plan '{self._plan.name}' failed ({why}). Keep what it did?"
        # no person, no answer: half a step is not kept because nobody was there
        return "" if self._ws.reporter.ask(question) else f"{why}; nobody said to keep it"


def _note(error: BaseException | None, text: str) -> None:
    if error is not None:
        error.add_note(f"Reprieve: {text}")


def _named(name: str, what: str) -> str:
    if not name or plain(name) != name:
        raise Usage(f"'{name}' can't name a {what}", hints=["letters, digits, '.', '_' and '-', at most 64"])
    return name


def _policy(word: str) -> str:
    if word not in ON_FAILURE:
        raise Usage(f"on_failure is '{word}'", hints=[f"one of: {', '.join(ON_FAILURE)}"])
    return word


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace") or "."
