"""Plan and carry out the installing and removing of our hooks, for all agents alike.

`protect_plan` and `unprotect_plan` look and decide; `foreign.apply` writes. In between a front end shows each change.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from reprieve.agents import foreign, hookfile, registry
from reprieve.agents.foreign import Change
from reprieve.agents.machine import PROJECT, USER, Machine, Target
from reprieve.errors import Misconfigured, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.agents.registry import Agent


def found_on(machine: Machine) -> list[str]:
    """The names of the agents on this machine."""
    return [name for name in registry.NAMES if registry.load(name).detect(machine)]


def protect_plan(names: Sequence[str], scope: str, machine: Machine) -> list[Change]:
    """What to write so that these agents (none named: those found) call us. Nothing is written.

    A file that can't be changed is a Change with a `problem`; the others are still planned. What is left to the person
    is in the notes of an agent's first change.
    """
    changes: dict[str, Change] = {}
    for name in names or found_on(machine):
        agent = registry.load(name)
        if scope not in agent.SCOPES:
            raise Usage(f"{agent.TITLE} has no {scope} scope for hooks", hints=[f"use --scope {agent.SCOPES[0]}"])
        todo = tuple(agent.left_to_do(machine, scope))
        try:
            targets = agent.targets(machine, scope)
        except Misconfigured as problem:
            changes[f"{name}?"] = Change(agent=name, scope=scope, path="", real_path="", problem=problem, notes=todo)
            continue
        for target in targets:
            # Copilot CLI and VS Code share one file: the second one adds its notes, not its text.
            if target.path in changes:
                known = changes[target.path]
                changes[target.path] = known.replace(notes=(*known.notes, *(n for n in todo if n not in known.notes)))
            else:
                changes[target.path] = _install(agent, target, scope, machine, todo)
            todo = ()
    return list(changes.values())


def _install(agent: Agent, target: Target, scope: str, machine: Machine, notes: tuple[str, ...]) -> Change:
    base = Change(
        agent=agent.NAME, scope=scope, path=target.path, real_path=target.path, is_executable=target.is_executable
    )
    try:
        now = foreign.read(target.path)
        new = agent.plan_install(now.text, target=target, machine=machine)
        had_ours = _has_ours(agent, target, now.text)
    except Misconfigured as problem:
        return base.replace(problem=problem, notes=notes)
    notes = (*now.notes, *_wrappers(target.path, now.text), *notes)
    return base.replace(real_path=now.real_path, old=now.text, new=new, had_ours=had_ours, notes=notes)


def _wrappers(path: str, text: str | None) -> list[str]:
    return [
        f"'{path}' has a line of yours that calls us; it was left alone: {line}" for line in hookfile.wrappers(text)
    ]


def _has_ours(agent: Agent, target: Target, text: str | None) -> bool:
    if text is None:
        return False
    return agent.plan_remove(text, target=target, before=None, is_before_known=False) != text


def unprotect_plan(names: Sequence[str], machine: Machine, *, records: str, scope: str | None = None) -> list[Change]:
    """What to write so that these agents (none named: all) no longer call us, in one scope or in both.

    Looks at the files themselves, so that an entry without a record (a copied project) is found too. A file that holds
    exactly what we wrote gets back exactly what it held before.
    """
    changes: dict[str, Change] = {}
    for name in names or registry.NAMES:
        agent = registry.load(name)
        for each in (scope,) if scope else (USER, PROJECT):
            if each not in agent.SCOPES:
                continue
            # Backwards: the record of the file that was written first knows which folders were made.
            for target in reversed(_all_targets(agent, machine, each)):
                if target.path not in changes and (change := _remove(agent, target, records)) is not None:
                    changes[target.path] = change
    return list(changes.values())


def _all_targets(agent: Agent, machine: Machine, scope: str) -> Sequence[Target]:
    """Every place where an entry of ours may be, not only those that installing would choose today."""
    everywhere = getattr(agent, "all_targets", None)
    found: Sequence[Target] = (everywhere or agent.targets)(machine, scope)
    return found


def _remove(agent: Agent, target: Target, records: str) -> Change | None:
    base = Change(
        agent=agent.NAME, scope=target.scope, path=target.path, real_path=target.path, is_removal=True, had_ours=True
    )
    try:
        now = foreign.read(target.path)
    except Misconfigured as problem:
        # Only a file that we did write to is worth a complaint.
        return base.replace(problem=problem) if foreign.load_record(records, target.path) else None
    if now.text is None:
        return None
    record = foreign.load_record(records, target.path)
    try:
        new = agent.plan_remove(
            now.text,
            target=target,
            before=record.before if record else None,
            is_before_known=record is not None,
        )
    except Misconfigured as problem:
        return base.replace(problem=problem) if record or hookfile.mentions_us(now.text) else None
    if new == now.text:
        return None
    if record is not None and now.text == record.after and not _has_ours(agent, target, record.before):
        new = record.before
    return base.replace(real_path=now.real_path, old=now.text, new=new, notes=now.notes)


def left_behind(names: Sequence[str], machine: Machine, *, records: str, scope: str | None = None) -> list[str]:
    """What still calls us once `unprotect_plan` is carried out, in words, with what to do about it."""
    left: list[str] = []
    seen: set[str] = set()
    for name in names or registry.NAMES:
        agent = registry.load(name)
        for each in (scope,) if scope else (USER, PROJECT):
            for target in _all_targets(agent, machine, each) if each in agent.SCOPES else ():
                if target.path not in seen:
                    seen.add(target.path)
                    left += _wrappers(target.path, _text(target.path))
    for record in foreign.all_records(records):
        if record.path in seen or record.agent not in (names or registry.NAMES) or scope not in (None, record.scope):
            continue
        found = _elsewhere(record, machine, records)
        if found:
            left.append(found)
    return left


def _elsewhere(record: foreign.Record, machine: Machine, records: str) -> str:
    """That our entry is in another project than this one, "" if it is there no more."""
    agent = registry.load(record.agent)
    folder = os.path.dirname(record.path)
    while record.scope == PROJECT and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        for target in _all_targets(agent, machine.replace(project=folder), PROJECT):
            if target.path == record.path:
                if _remove(agent, target, records) is None:
                    return ""
                command = shlex.join(["reprieve", "-C", folder, "unprotect", record.agent, "--scope", PROJECT])
                return f"our hook is still in '{record.path}'; take it out with: {command}"
    text = _text(record.path)
    if text is None or not hookfile.mentions_us(text):
        return ""
    return f"our hook is still in '{record.path}', where {agent.TITLE} does not look now; take it out by hand"


def _text(path: str) -> str | None:
    try:
        return foreign.read(path).text
    except Misconfigured:  # said where it is planned
        return None
