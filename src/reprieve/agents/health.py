"""Prove that an agent really calls us: the entry is there, it is not switched off, the command answers, steps arrive.

Looks, and runs the installed command once with a probe that records nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping

from reprieve.agents import foreign, hookfile, jsonc, registry
from reprieve.agents.machine import PROJECT, USER, Machine
from reprieve.agents.protect import found_on, protect_plan
from reprieve.agents.switches import switched_off
from reprieve.app.doctor import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.agents.foreign import Change

PROBE = "reprieve_probe"
_PATIENCE_S = 20
# Agents that are started from a desktop have no more than this.
_PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


def diagnose_agents(machine: Machine, *, records: str, seen: Mapping[str, str]) -> list[Finding]:
    """One or more findings for each agent that is here or was protected. `seen`: agent → when its last step came."""
    known = {record.agent for record in foreign.all_records(records)}
    here = set(found_on(machine))
    found: list[Finding] = []
    for name in registry.NAMES:
        if name in here | known:
            found += _diagnose(name, machine, seen)
    return found


def _diagnose(name: str, machine: Machine, seen: Mapping[str, str]) -> list[Finding]:
    agent = registry.load(name)
    plans = [
        change for scope in (USER, PROJECT) if scope in agent.SCOPES for change in protect_plan([name], scope, machine)
    ]
    ours = [change for change in plans if change.had_ours and change.problem is None]
    if not ours:
        broken = [change.problem for change in plans if change.problem is not None]
        if broken:
            return [Finding("warn", name, broken[0].message, *broken[0].hints[:1])]
        # a choice, not a fault
        wrappers = [line for change in plans for line in hookfile.wrappers(change.old)]
        but = f", but for what a line of yours calls us for: {wrappers[0]}" if wrappers else ""
        text = f"{agent.TITLE} is on this machine and not protected{but}"
        return [Finding("ok", name, text, f"reprieve protect {name}")]
    found = []
    off = switched_off(name, machine, [change.path for change in ours])
    if off:
        found.append(Finding("bad", name, *off))
    scopes = {change.scope for change in ours}
    for change in plans:
        hint = f"reprieve protect {name} --scope {change.scope}"
        if change.scope not in scopes:
            continue
        if change.problem is not None:
            found.append(Finding("warn", name, change.problem.message, *change.problem.hints[:1]))
        elif change.is_needed:
            found.append(Finding("warn", name, _difference(change), f"bring it up to date: {hint}"))
        problem = probe(_commands(change.old or ""))
        if problem:
            found.append(Finding("bad", name, f"the hook in '{change.path}' does not work: {problem}", hint))
    if found:
        return found
    when = seen.get(name)
    last = f"its last step here was recorded {when}" if when else "no step of it was recorded here yet"
    where = " and ".join(f"'{change.path}'" for change in ours[:2])
    hint = "" if when else next(iter(agent.left_to_do(machine, ours[0].scope)), "")
    return [Finding("ok", name, f"the hook in {where} answers; {last}", hint)]


def _difference(change: Change) -> str:
    """What is not as we would write it, in words. A narrower matcher or `async` is enough to keep calls from us."""
    if change.old is None:
        return f"'{change.path}' is gone: steps may go on without us"
    events = ", ".join(hookfile.differing(change.old, change.new or ""))
    entry = f"the entry for {events}" if events else "our part"
    return f"{entry} in '{change.path}' is not what we would write: steps may go on without us"


def _commands(text: str) -> list[str]:
    """The command lines in a configuration file that call us, as a shell would get them."""
    import tomllib

    lines = [line.removeprefix("exec ").removesuffix(" && exit") for line in text.splitlines()]
    readers: tuple[Callable[[str], object], ...] = (_json, tomllib.loads, _plugin)
    for read in readers:
        try:
            lines = hookfile.strings(read(text))
            break
        except ValueError:
            continue  # a file of another kind
    return [line for line in lines if hookfile.calls_us(line) and not line.endswith("exit 0")]


def _json(text: str) -> object:
    return jsonc.parse(text).value()


def _plugin(text: str) -> list[str]:
    """The command in opencode's plugin. Raises ValueError if it is none."""
    import shlex

    command = json.loads(text.partition("const COMMAND = ")[2].partition("\n")[0])
    return [shlex.join([*map(str, command), "hook", "opencode", "before"])]


def probe(commands: list[str]) -> str:
    """What is wrong with the installed command, "" if it answers a probe."""
    if not commands:
        return ""
    token = os.urandom(8).hex()
    variables = {k: v for k, v in os.environ.items() if k.startswith(("HOME", "LANG", "XDG_", "REPRIEVE_", "TMPDIR"))}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", commands[0]],
            input=json.dumps({PROBE: token}).encode(),
            env={**variables, "PATH": _PLAIN_PATH},
            capture_output=True,
            timeout=_PATIENCE_S,
        )
        answer = json.loads(done.stdout or b"{}")
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_PATIENCE_S} s"
    except (OSError, ValueError) as error:
        return str(error)
    if isinstance(answer, dict) and answer.get(PROBE) == token:
        return str(answer.get("problem") or "")
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"it ended with {done.returncode} and did not answer"
