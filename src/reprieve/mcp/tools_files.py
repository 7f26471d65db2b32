"""Tools about files: checkpoint, look, plan a way back, apply it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reprieve.app import agreement, planned
from reprieve.app.annexes import tracked
from reprieve.app.beside import NewestFirst, between, find_effect, found_in, is_lost, merged, since
from reprieve.app.compared import changes_json, compare_all
from reprieve.app.effects import json_of
from reprieve.app.patch import diff_lines
from reprieve.app.persons import agent_above
from reprieve.app.plan_story import unfinished
from reprieve.app.protected import protected
from reprieve.app.render import checkpoint_json, entry_json, gap_json, plan_json, report_json, status_json
from reprieve.app.words import safe
from reprieve.app.workspace import Workspace
from reprieve.errors import Conflict, Refused, Usage
from reprieve.mcp import schemas as s
from reprieve.mcp.tool import Call, Json, Tool, page
from reprieve.model.actor import of_session
from reprieve.model.timeline import CHECKPOINT, MOVES, TimelineEntry
from reprieve.policy.redact import redact
from reprieve.rollback.execute import conflict

_PATCH = 200_000  # characters of a diff in one answer


def _checkpoint(call: Call) -> Json:
    with call.workspace(create=True) as ws:
        label = ws.label(call.text("label"))
        call.desk.count_checkpoint()
        made = ws.checkpoint(label, pin=call.flag("pin"), note=call.text("note"))
        return {"checkpoint": checkpoint_json(made.entry, made.gaps)}


def _status(call: Call) -> Json:
    with call.workspace() as ws:
        status = ws.status(call.maybe("since"))
        shown = status_json(ws, status.replace(changes=()), since(ws, status.base), unfinished(ws.timeline))
        changes, cursor = _changes_page(call, ws, status.changes, is_live=True)
        return {**shown, "changes": changes, "total": len(status.changes), "next_cursor": cursor}


def _diff(call: Call) -> Json:
    other = call.maybe("to")
    with call.workspace() as ws:
        paths = planned.inner_paths(ws, call.texts("paths"))
        found = ws.diff(call.maybe("from"), other, paths)
        until = ws.resolve(other).seq if other else 0
        changes, cursor = _changes_page(call, ws, found.changes, is_live=other is None)
        patch, is_cut = "", False
        if not call.flag("stat"):
            start = int(call.text("cursor") or 0)
            patch, is_cut = _patch(ws, found.changes[start : start + call.limit], is_live=other is None)
        return {
            "changes": changes,
            "effects": since(ws, found.base, until=until) if not paths else [],
            "gaps": [gap_json(gap) for gap in found.gaps],
            "patch": patch,
            "is_cut": is_cut,
            "total": len(found.changes),
            "next_cursor": cursor,
        }


def _changes_page(call: Call, ws: Workspace, changes: Any, *, is_live: bool) -> tuple[list[Json], str | None]:
    chosen, cursor = page(changes, call)
    return changes_json(ws, chosen, b_is_live=is_live), cursor


def _patch(ws: Workspace, changes: Any, *, is_live: bool) -> tuple[str, bool]:
    """The diff as text: secrets hidden, nothing in it that would move a cursor, cut where it gets too long."""
    lines: list[str] = []
    size = 0
    for change, compared in compare_all(ws, changes, b_is_live=is_live):
        for line, _ in diff_lines(change, compared):
            shown = safe(redact(line.decode("utf-8", "surrogateescape")), keep="\t")
            size += len(shown) + 1
            if size > _PATCH:
                return "\n".join(lines), True
            lines.append(shown)
    return "\n".join(lines), False


def _log(call: Call) -> Json:
    with call.workspace() as ws:
        entries, cursor = page(_story(ws, call.text("search"), call.text("search").casefold()), call)
        return {"entries": entries, "next_cursor": cursor}


def _story(ws: Workspace, search: str, needle: str) -> Iterator[Json]:
    for entry in merged(ws.log(search=search, kinds=(CHECKPOINT, *MOVES)), NewestFirst(ws)):
        if isinstance(entry, TimelineEntry):
            if not entry.is_pruned:
                yield entry_json(entry)
        elif found_in(entry, needle):
            yield {**entry, "kind": "effect", "effect_kind": entry["kind"]}


def _show(call: Call) -> Json:
    with call.workspace() as ws:
        effect = find_effect(ws, call.text("ref"))
        if effect is not None:
            return {"effect": json_of(effect), "next_cursor": None}
        entry = ws.resolve(call.text("ref"))
        before = ws.timeline.at(entry.seq - 1)
        found = ws.diff(before.id, entry.id).changes if before is not None and not before.is_pruned else ()
        changes, cursor = _changes_page(call, ws, found, is_live=False)
        effects = between(ws, before.seq if before is not None else 0, entry.seq)
        shown = {"entry": checkpoint_json(entry), "changes": changes, "changes_known": not is_lost(entry, before)}
        return {**shown, "effects": effects, "next_cursor": cursor}


def _track(call: Call) -> Json:
    with call.workspace(create=True) as ws:
        try:
            paths = planned.inner_paths(ws, call.texts("paths"))
        except Usage as error:
            raise Refused(
                f"{error.message}; what a server protects is settled when it starts",
                hints=["a person can protect it from a terminal: reprieve track PATH"],
            ) from error
        call.desk.count_checkpoint()
        made = ws.checkpoint("track", only_changes=True)
        held, missing = protected(ws, made, paths)
        return {
            "protected": [path.decode("utf-8", "surrogateescape") or "." for path in held],
            "not_protected": [gap_json(gap) for gap in missing],
            "tracked": tracked(ws),
            "checkpoint": checkpoint_json(made.entry, made.gaps),
        }


def plan(call: Call, kind: str, asked: Json) -> Json:
    """Make a plan, remember it for this session, say what applying it takes."""
    with call.workspace() as ws:
        made = planned.make(ws, kind, asked)
        call.desk.remember(call.owner, made, kind, asked)
        shown: Json = dict(plan_json(made))
        actions, cursor = page(shown["actions"], call)
        reason = agreement.why_a_person(made)
        return {
            "plan": {**shown, "actions": actions},
            "total": len(shown["actions"]),
            "next_cursor": cursor,
            "needs_person": bool(reason),
            "reason": reason,
            "apply_with": {"tool": "reprieve_apply_plan", "arguments": {"plan_id": made.id}},
        }


def _plan_rollback(call: Call) -> Json:
    return plan(call, "rollback", _given(call, "ref", "only", "everything", "on_conflict", "files_only"))


def _undo(call: Call) -> Json:
    return plan(call, "undo", _given(call, "step", "tail", "on_conflict"))


def _redo(call: Call) -> Json:
    return plan(call, "redo", {})


def _revert(call: Call) -> Json:
    return plan(call, "revert", _given(call, "paths", "to", "hunks"))


def _given(call: Call, *names: str) -> Json:
    return {name: call.args[name] for name in names if call.args.get(name) not in (None, "")}


def _apply(call: Call) -> Json:
    kind, asked = call.desk.recall(call.owner, call.text("plan_id"))
    with call.workspace() as ws:
        made = planned.make(ws, kind, asked)
        if made.id != call.text("plan_id"):
            call.desk.remember(call.owner, made, kind, asked)
            raise Conflict(
                "something changed since the plan was made; nothing was touched",
                hints=[f"look at what would happen now, and apply that: {made.id}"],
                data={"plan": plan_json(made)},
            )
        if made.conflicts:
            raise conflict(made)
        agreement.need_person(ws, made, asker=f"{call.desk.secret}\0{call.owner}")
        agent = agent_above(ws)
        ws.actor = agent.actor if agent is not None else of_session("mcp", None)
        report = planned.carry_out(ws, kind, asked, made)
        if report.is_partial:
            call.notes.append("Only a part was taken back; the report names what was not.")
        return {"plan": plan_json(made), "report": report_json(report), "is_whole": not report.is_partial}


_PLANNED = s.gives(
    "plan", "needs_person", "apply_with",
    plan=s.PLAN, needs_person=s.B, reason=s.S, apply_with=s.ANY, total=s.N, next_cursor=s.CURSOR_OUT,
)  # fmt: skip
_TWO = " Nothing is touched yet: it answers with a plan; reprieve_apply_plan carries it out."
_ON_CONFLICT = s.text(
    "What to do where the world is not as it was left", choices=("abort", "keep", "theirs", "merge", "both")
)

TOOLS = (
    Tool(
        "checkpoint", "Take a checkpoint",
        "Remember every file in the folder as it is now, ignored and untracked ones too. Call it before you change "
        "anything, and give it a label that says what you are about to do. What could not be protected is in `gaps`.",
        _checkpoint,
        s.takes(
            label=s.text("What you are about to do; REF takes it wherever it takes an id"),
            note=s.text("A longer text for people", most=s.TEXT),
            pin=s.flag("Never prune it"),
        ),
        s.gives("checkpoint", checkpoint=s.CHECKPOINT),
    ),
    Tool(
        "status", "See what changed",
        "What changed since a checkpoint (default: the latest): files with who changed them, effects, and what is not "
        "protected.",
        _status,
        s.takes(since=s.REF, **s.PAGE),
        s.gives(
            "changes", "effects", "gaps", since={"type": ["object", "null"]}, changes=s.listed(s.CHANGE),
            effects=s.listed(s.EFFECT), gaps=s.listed(s.GAP), plans=s.listed(s.ANY), total=s.N,
            next_cursor=s.CURSOR_OUT,
        ),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "diff", "See the lines that differ",
        "What differs between two checkpoints, or between one (default: the latest) and now, as changes and as a patch "
        "in git's format. Secrets in the patch are replaced by ***.",
        _diff,
        s.takes(
            **{"from": s.REF, "to": s.REF},
            paths=s.texts("Only these files and folders, relative to the root"),
            stat=s.flag("Only counts, no patch"), **s.PAGE,
        ),
        s.gives(
            "changes", "effects", "gaps", "patch", changes=s.listed(s.CHANGE), effects=s.listed(s.EFFECT),
            gaps=s.listed(s.GAP), patch=s.S, is_cut=s.B, total=s.N, next_cursor=s.CURSOR_OUT,
        ),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "log", "Read the timeline",
        "The timeline, newest first: checkpoints, effects, and everything that was taken back.",
        _log,
        s.takes(search=s.text("Only entries whose label, note, step or actor has this in it"), **s.PAGE),
        s.gives("entries", entries=s.listed(s.ENTRY), next_cursor=s.CURSOR_OUT),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "show", "See one entry whole",
        "One checkpoint, rollback or effect with all that it changed.",
        _show,
        s.takes(("ref",), ref={**s.REF, "minLength": 1}, **s.PAGE),
        s.gives(
            "next_cursor", entry=s.ENTRY, effect=s.EFFECT, changes=s.listed(s.CHANGE), effects=s.listed(s.EFFECT),
            changes_known={"type": "boolean"}, next_cursor=s.CURSOR_OUT,
        ),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "plan_rollback", "Plan to go back to a checkpoint",
        "Plan to make the folder what it was at a checkpoint (default: the latest), and to undo the effects since. "
        "Changes known to be a person's stay unless `everything` is asked for." + _TWO,
        _plan_rollback,
        s.takes(
            ref=s.REF,
            only=s.texts("Only these files and folders, relative to the root"),
            everything=s.flag("Take back what a person changed, too"),
            files_only=s.flag("Leave effects outside of the folder alone"),
            on_conflict=_ON_CONFLICT, **s.PAGE,
        ),
        _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "undo", "Plan to undo one step",
        "Plan to take one step back (default: the last) and keep what came later." + _TWO,
        _undo,
        s.takes(
            step=s.text("call:ID, step:NAME, turn:N, or an id from the log: the step that ends there"),
            tail=s.flag("Take the later steps that depend on it along"),
            on_conflict=_ON_CONFLICT, **s.PAGE,
        ),
        _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "redo", "Plan to take back the last rollback",
        "Plan to bring back what the last rollback, undo or revert took away; repeats." + _TWO,
        _redo, s.takes(**s.PAGE), _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "revert", "Plan to bring single files back",
        "Plan to bring back single files, folders or globs as they were at a checkpoint (default: the latest)." + _TWO,
        _revert,
        s.takes(
            ("paths",),
            paths=s.texts("Files, folders or globs, relative to the root", least=1),
            to=s.REF,
            hunks={"type": "array", "items": s.number("", least=1, most=1_000_000), "maxItems": s.MANY,
                   "description": "Only these places of one file, counted as in the diff"}, **s.PAGE,
        ),
        _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "apply_plan", "Carry out a plan",
        "Carry out exactly the plan of that id, made before in this session. If anything changed since, nothing is "
        "touched. Where a person's files or effects are concerned a person is asked; your own yes does not count.",
        _apply,
        s.takes(("plan_id",), plan_id=s.text("`plan.id` of the plan", least=1)),
        s.gives("plan", "report", plan=s.PLAN, report=s.REPORT, is_whole=s.B),
        destroys=True, reaches=True, has_foreign_text=True,
    ),
    Tool(
        "track", "Make sure that paths are protected",
        "Say that you are about to change these paths: those in `protected` are in a checkpoint when this returns, "
        "those in `not_protected` are not, with the reason. Paths outside of the folder are refused; only a person can "
        "add those.",
        _track,
        s.takes(("paths",), paths=s.texts("Files and folders, relative to the root", least=1)),
        s.gives("protected", "not_protected", "tracked", "checkpoint", protected=s.listed(s.S),
                not_protected=s.listed(s.GAP), tracked=s.listed(s.S), checkpoint=s.CHECKPOINT),
        repeats=True,
    ),
)  # fmt: skip
