"""The JSON shapes of what Reprieve says (docs/reference.md): the same for the command line, MCP and the web."""

from __future__ import annotations

import time

from reprieve.model.timeline import CHECKPOINT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.doctor import Finding
    from reprieve.app.plan_story import PlanStep
    from reprieve.app.workspace import Status, Workspace
    from reprieve.errors import ReprieveError
    from reprieve.model.change import Change, Gap
    from reprieve.model.plan import Action, Conflicted, EffectAction, EffectOutcome, Kept, Plan, Report
    from reprieve.model.timeline import TimelineEntry

    Json = dict[str, object]


def path_text(path: bytes) -> str:
    """A path as text; bytes that are not UTF-8 become lone surrogates, which JSON writes as \\udcXX."""
    return path.decode("utf-8", "surrogateescape")


def time_text(at_ns: int) -> str:
    """ISO 8601 in UTC, to the microsecond."""
    seconds, ns = divmod(at_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ns // 1000:06d}Z"


def checkpoint_json(entry: TimelineEntry, gaps: Sequence[Gap] = ()) -> Json:
    """A checkpoint with what it could not protect."""
    return {**entry_json(entry), "gaps": [gap_json(gap) for gap in gaps]}


def entry_json(entry: TimelineEntry) -> Json:
    """An entry of the timeline."""
    shown: Json = {
        "id": entry.id,
        "seq": entry.seq,
        "kind": entry.kind,
        "label": entry.title,
        "created_at": time_text(entry.created_at),
        "actor": entry.actor,
        "step": entry.step,
        "note": entry.note,
        "files": entry.files,
        "bytes": entry.size,
        "changed": entry.changed,
        "pinned": entry.is_pinned,
        "pruned": entry.is_pruned,
    }
    if entry.kind != CHECKPOINT and entry.data:
        shown["data"] = _data(entry.data)
    return shown


def _data(text: str) -> object:
    import json

    return json.loads(text)


def change_json(change: Change, *, added: int = 0, removed: int = 0, binary: bool = False) -> Json:
    """A path that differs. `added` and `removed` count lines; both are 0 for binary content."""
    return {
        "path": path_text(change.path),
        "change": change.change,
        "actor": change.actor,
        "added": added,
        "removed": removed,
        "binary": binary,
    }


def gap_json(gap: Gap) -> Json:
    """Something that is not protected, and why."""
    return {"path": path_text(gap.path), "reason": gap.reason}


def action_json(action: Action) -> Json:
    """One thing that a plan does."""
    return {
        "kind": action.kind,
        "path": path_text(action.path),
        "verb": action.verb,
        "actor": action.actor,
        "reason": action.reason,
    }


def effect_action_json(action: EffectAction) -> Json:
    """One effect of a plan."""
    return {
        "kind": "effect",
        "effect": action.effect,
        "verb": action.verb,
        "actor": action.actor,
        "reason": action.reason,
        "class": action.cls,
        "description": action.description,
        "account": action.account,
    }


def effect_outcome_json(outcome: EffectOutcome) -> Json:
    """What became of an effect."""
    return {
        "id": outcome.id,
        "state": outcome.state,
        "detail": outcome.detail,
        "description": outcome.description,
        "account": outcome.account,
    }


def conflict_json(conflict: Conflicted) -> Json:
    """A path that is not as it was left."""
    return {"path": path_text(conflict.path), "reason": conflict.reason, "actor": conflict.actor}


def kept_json(kept: Kept) -> Json:
    """A path that stays as it is."""
    return {"path": path_text(kept.path), "reason": kept.reason, "actor": kept.actor}


def plan_json(plan: Plan) -> Json:
    """Exactly what would be done."""
    return {
        "id": plan.id,
        "kind": plan.kind,
        "target": plan.target,
        "label": plan.label,
        "of": plan.of,
        "actions": [*map(effect_action_json, plan.effects), *map(action_json, plan.actions)],
        "conflicts": [conflict_json(conflict) for conflict in plan.conflicts],
        "kept": [kept_json(kept) for kept in plan.kept],
        "not_undone": [gap_json(gap) for gap in plan.not_undone],
        "dependants": list(plan.dependants),
    }


def report_json(report: Report) -> Json:
    """What was done."""
    return {
        "operation": report.operation,
        "restored": [path_text(path) for path in report.restored],
        "deleted": [path_text(path) for path in report.deleted],
        "kept": [kept_json(kept) for kept in report.kept],
        "conflicts": [conflict_json(conflict) for conflict in (*report.conflicts, *report.marked)],
        "effects": [effect_outcome_json(effect) for effect in report.effects],
        "not_undone": [gap_json(gap) for gap in report.not_undone],
        "held_open": [gap_json(gap) for gap in report.held_open],
        "safety_checkpoint": report.safety_checkpoint,
        "redo": report.redo,
    }


def error_json(error: ReprieveError) -> Json:
    """What went wrong, and what to do next."""
    shown: Json = {"code": error.code, "message": error.message, "hints": list(error.hints)}
    if error.details:
        shown["details"] = list(error.details)
    return {**shown, **error.data}


def finding_json(finding: Finding) -> Json:
    """One thing that `doctor` looked at."""
    return {"level": finding.level, "subject": finding.subject, "text": finding.text, "hint": finding.hint}


def status_json(ws: Workspace, status: Status, effects: Sequence[Json], unfinished: Sequence[PlanStep]) -> Json:
    """What is different since a checkpoint, and the steps of plans that never ended."""
    from reprieve.app.compared import changes_json

    return {
        "since": entry_json(status.base) if status.base else None,
        "changes": changes_json(ws, status.changes, b_is_live=True),
        "effects": list(effects),
        "gaps": [gap_json(gap) for gap in status.gaps],
        "plans": [{"plan": s.plan, "step": s.name, "state": s.state, "before": s.opened.id} for s in unfinished],
    }
