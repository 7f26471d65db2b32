"""Show a plan, ask, have it carried out, say what happened: what rollback, revert and redo have in common."""

from __future__ import annotations

from reprieve.cli import humane
from reprieve.errors import Refused
from reprieve.model.actor import PERSON, UNKNOWN, said
from reprieve.model.effect import KEPT
from reprieve.model.plan import GIT, KEEP_EFFECT, Report
from reprieve.model.timeline import REDO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from reprieve.app.workspace import Workspace
    from reprieve.cli.terminal import Terminal
    from reprieve.model.change import Gap
    from reprieve.model.plan import Action, EffectAction, EffectOutcome, Kept, Plan

    class Move(Protocol):
        """A use case that plans, and unless dry carries out the plan; `expect` is the id of the plan agreed to."""

        def __call__(self, *, dry_run: bool, expect: str) -> tuple[Plan, Report | None]: ...


SHOWN = 200  # lines of a plan on a terminal; --json has all
FEW = 3  # names in a sentence
PARTLY = 6
_MARKS = {"delete": ("-", "red"), "recreate": ("+", "green")}


class Words:
    """How one command speaks of itself."""

    def __init__(self, question: str, done: str, nothing: str) -> None:
        self.question, self.done, self.nothing = question, done, nothing


def carry_out(move: Move, ws: Workspace, out: Terminal, words: Words, *, dry_run: bool, ask: bool) -> int:
    """The way of every plan. Raises Conflict (nothing touched) and Refused (not confirmed)."""
    expect = "" if dry_run else _agreed_for_agent(move, ws)
    if expect:
        pass
    elif dry_run or (ask and out.is_interactive):
        plan, _ = move(dry_run=True, expect="")
        if dry_run:
            preview(plan, out, words)
            return 0
        if (plan.actions or any(action.verb != KEEP_EFFECT for action in plan.effects)) and not plan.conflicts:
            show_plan(plan, out, words)
            if not out.confirm(words.question.format(count=_counted(plan))):
                raise Refused("not confirmed; nothing was touched")
            expect = plan.id  # what was agreed to is what happens
    plan, report = move(dry_run=False, expect=expect)
    assert report is not None
    if out.json:
        from reprieve.app.render import plan_json, report_json

        out.answer(plan=plan_json(plan), report=report_json(report))
    else:
        show_report(plan, report, out, words, is_plan_shown=bool(expect) and ws.actor == PERSON)
    return PARTLY if report.is_partial else 0


def _agreed_for_agent(move: Move, ws: Workspace) -> str:
    """The id of the plan that an agent may carry out; "" for a person, who needs no leave.

    As for the MCP server: what is known to be an agent's own work goes, all else only after a person approved it.
    """
    from reprieve.app.persons import agent_above

    agent = agent_above(ws)
    if agent is None:
        return ""
    from reprieve.app.agreement import need_person
    from reprieve.app.run import refuse_while_running

    refuse_while_running(ws)
    ws.actor = agent.actor
    plan, _ = move(dry_run=True, expect="")
    if not plan.conflicts:  # else the move itself says so
        need_person(ws, plan, asker=f"command line\0{agent.actor}", own=agent.actor)
    return plan.id


def preview(plan: Plan, out: Terminal, words: Words) -> None:
    """A dry run: the plan, and that it stays one."""
    if out.json:
        from reprieve.app.render import plan_json

        out.answer(plan=plan_json(plan))
        return
    show_plan(plan, out, words)
    out.say("Nothing was touched: this was a dry run")


def show_plan(plan: Plan, out: Terminal, words: Words) -> None:
    """What would be done, what stays, what cannot be undone, what stands in the way."""
    if not plan.actions and not plan.conflicts and not plan.effects:
        out.line(_nothing(plan, Report("", kept=plan.kept, not_undone=plan.not_undone), words))
    else:
        out.line(f"Plan: back to {target(plan)}" if plan.target else f"Plan: undo {humane.safe(plan.label)}")
        show_effects(plan.effects, out)
        _actions(plan.actions, out, whole="--dry-run --json")
    for conflict in plan.conflicts:
        out.line(f"  ! {humane.path(conflict.path)}: conflict, {humane.safe(conflict.reason)}", "red")
    _left(plan.kept, plan.not_undone, out)


def show_report(plan: Plan, report: Report, out: Terminal, words: Words, *, is_plan_shown: bool) -> None:
    """What was done, and how to take it back."""
    if not report.operation and report.effects:
        show_outcomes(report.effects, out)
        _left(report.kept, report.not_undone, out)
        out.say(f"{counted(report.effects)}; no file had to change")
        return
    if not report.operation:
        out.say(_nothing(plan, report, words))
        _left(report.kept, report.not_undone, out)
        return
    show_outcomes(report.effects, out)
    if not is_plan_shown and not out.quiet:
        _actions(plan.actions, out, whole=f"reprieve show {report.operation}")
    _left(report.kept, report.not_undone, out)
    for conflict in report.conflicts:
        out.line(f"  ! {humane.path(conflict.path)}: left as it is, {humane.safe(conflict.reason)}", "red")
    for conflict in report.marked:
        out.line(f"  ! {humane.path(conflict.path)}: for you to decide, {humane.safe(conflict.reason)}", "red")
    parts = [humane.count(len(report.restored), "path") + " restored"]
    if report.deleted:
        parts.append(f"{len(report.deleted):,} deleted")
    if report.kept:
        parts.append(f"{len(report.kept):,} kept")
    if report.effects:
        parts.append(counted(report.effects))
    out.say(f"{words.done.format(target=target(plan), label=humane.safe(plan.label))}: {', '.join(parts)}")
    if report.safety_checkpoint:
        out.say(f"What was there before is kept as {report.safety_checkpoint}")
    if report.redo:
        out.say(f"Take this back with: {report.redo}")


def show_effects(effects: Sequence[EffectAction], out: Terminal) -> None:
    """What will happen to each effect, newest first, complete: an inverse must be seen whole before it is agreed to."""
    for action in effects:
        if action.verb in ("undo", "cancel"):
            mark, doubt = out.styled("~", "yellow"), "" if action.is_trusted else "  (written by an agent)"
            out.line(f"  {mark} {action.verb:9} {action.effect} {humane.safe(action.description)}{doubt}")
            out.line(f"              {humane.safe(action.reason)}")
        elif action.verb == KEEP_EFFECT:
            out.line(f"  = kept      {action.effect} {humane.safe(action.description)}: {humane.safe(action.reason)}")
        else:
            word = "conflict" if action.verb == "conflict" else "not undone"
            text = f"{action.effect} {humane.safe(action.description)}: {humane.safe(action.reason)}"
            out.line(f"  ! {word} {text}", "red")


def show_outcomes(effects: Sequence[EffectOutcome], out: Terminal) -> None:
    """What became of each effect."""
    for effect in effects:
        where = f"  (in account: {humane.safe(effect.account)})" if effect.account else ""
        said = f"{effect.id} {humane.safe(effect.description)}: {humane.safe(effect.detail)}{where}"
        if effect.state == KEPT:
            out.line(f"  = kept      {said}")
        elif effect.is_undone:
            out.line(f"  {out.styled('~', 'yellow')} {effect.state:9} {said}")
        else:
            out.line(f"  ! not undone ({effect.state}) {said}", "red")


def counted(effects: Sequence[EffectOutcome]) -> str:
    """How many were undone, and how many were not."""
    kept = sum(effect.state == KEPT for effect in effects)
    undone = sum(effect.is_undone for effect in effects) - kept
    said = f"{humane.count(undone, 'effect')} undone, {len(effects) - undone - kept:,} not"
    return f"{said}, {kept:,} kept" if kept else said


def _nothing(plan: Plan, report: Report, words: Words) -> str:
    """Why nothing moves; never that all is as it was where something differs."""
    if report.is_partial:
        return f"Nothing was changed: what differs from {target(plan)} could not be taken back"
    if report.kept:
        return f"Nothing was changed: what differs from {target(plan)} is kept"
    known, everything = ("", "everything") if not plan.gaps else (" protected", "everything that is protected")
    text = words.nothing.format(target=target(plan), label=humane.safe(plan.label), everything=everything)
    if plan.is_idle:
        text = f"Nothing to undo: {humane.safe(plan.label)} changed no{known} file here"
    names = [humane.path(gap.path) for gap in plan.gaps[:FEW]]
    names += [f"{len(plan.gaps) - FEW:,} more"] if len(plan.gaps) > FEW else []
    return f"{text}; not protected: {', '.join(names)}" if names else text


def _counted(plan: Plan) -> str:
    parts = [humane.count(len(plan.actions), "path")] if plan.actions else []
    open_effects = sum(action.verb in ("undo", "cancel") for action in plan.effects)
    if open_effects:
        parts.append(humane.count(open_effects, "effect"))
    return " and ".join(parts) or "what there is"


def target(plan: Plan) -> str:
    """The target as a person knows it."""
    if plan.kind == REDO:
        return f"{humane.safe(plan.label)} ({plan.target})"
    return f'{plan.target} "{humane.safe(plan.label)}"' if plan.label else plan.target


def _actions(actions: Sequence[Action], out: Terminal, *, whole: str) -> None:
    """Each path with its verb. Directories that only get their times back are counted: they follow from the rest."""
    git = [action for action in actions if action.kind == GIT]
    listed = [action for action in actions if not action.is_times and action.kind != GIT]
    shown = listed[:SHOWN] if out.is_terminal else listed
    marks = {verb: out.styled(*mark) for verb, mark in _MARKS.items()}  # asked once whether there is colour
    other = out.styled("~", "yellow")
    for action in shown:
        by = "" if action.actor in ("", UNKNOWN) else f", by {humane.safe(said(action.actor))}"
        reason = f"  ({humane.safe(action.reason)}{by})" if action.reason else ""
        out.line(f"  {marks.get(action.verb, other)} {action.verb:9} {humane.path(action.path)}{reason}")
    if len(shown) < len(listed):
        out.line(f"  … and {len(listed) - len(shown):,} more; all of them: {whole}")
    _repositories(git, out)
    times = len(actions) - len(listed) - len(git)
    if times:
        out.line(f"  ~ set times of {humane.count(times, 'directory', 'directories')}")


def _repositories(actions: Sequence[Action], out: Terminal) -> None:
    """One line for each repository, with what people know by name; its objects and logs are many."""
    found: dict[bytes, list[bytes]] = {}
    for action in actions:
        at, _, below = action.path.partition(b".git/")
        found.setdefault(at + b".git", []).append(below)
    for repository, inner in found.items():
        known = [name for name in inner if name.startswith(b"refs/") or b"/" not in name]
        known = [name for name in known if name not in (b"COMMIT_EDITMSG", b"FETCH_HEAD") and name[-5:] != b".lock"]
        unnamed = "objects only" if all(name.startswith(b"objects/") for name in inner) else "its own notes"
        names = ", ".join(humane.path(name) for name in sorted(known)[:8]) or unnamed
        more = f" and {len(known) - 8} more" if len(known) > 8 else ""
        paths = humane.count(len(inner), "path")
        out.line(f"  {out.styled('~', 'yellow')} git       {humane.path(repository)}: {names}{more}  ({paths})")


def _left(kept: Sequence[Kept], not_undone: Sequence[Gap], out: Terminal) -> None:
    for item in kept[:SHOWN] if out.is_terminal else kept:
        out.line(f"  = kept      {humane.path(item.path)}: {humane.safe(item.reason)}")
    for gap in not_undone[:SHOWN] if out.is_terminal else not_undone:
        out.line(f"  ! not undone {humane.path(gap.path)}: {humane.safe(gap.reason)}", "red")
