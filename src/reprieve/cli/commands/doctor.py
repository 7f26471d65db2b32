"""`reprieve doctor`: what is wrong on this machine, and what to do about it."""

from __future__ import annotations

import platform

from reprieve.agents.health import diagnose_agents
from reprieve.app import config, places
from reprieve.app.doctor import Finding, diagnose
from reprieve.app.finding import open_workspace
from reprieve.app.persons import agent_above
from reprieve.app.recent import last_seen
from reprieve.app.render import finding_json
from reprieve.cli import humane
from reprieve.cli.helper.place import followed, running
from reprieve.cli.spec import Command, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.cli.this_machine import records, this_machine
from reprieve.errors import ReprieveError
from reprieve.version import VERSION

SPEC = Command(
    "doctor",
    "Tell what is wrong on this machine and what to do",
    (
        ("reprieve doctor", "check the store, the settings, this directory and the hooks of agents"),
        ("reprieve doctor --json", "the same for a bug report or a script"),
    ),
    details="It looks and never repairs. Nothing leaves this machine.",
    exit_codes=((1, "something needs attention"),),
)
_MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "bad": ("bad ", "red")}


def run(args: Parsed, out: Terminal) -> int:
    findings = [*diagnose(args.start, out.reporter), *_helper(args), *_agents(args)]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    out.answer(
        version=VERSION,
        python=python,
        system=platform.platform(),
        findings=[finding_json(finding) for finding in findings],
    )
    out.line(f"Reprieve {VERSION}, {python}, {platform.platform()}")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        out.line(f"  {out.styled(mark, style)}  {finding.subject}: {humane.safe(finding.text)}")
        if finding.hint:
            out.line(f"        Hint: {humane.safe(finding.hint)}")
    if any(finding.level == "bad" for finding in findings) and agent_above() is None:
        # the one place that names the switches: no agent that was refused something is to learn them from us
        out.say("If you have to go on before that is repaired, without protection:")
        out.say("  REPRIEVE_DISABLED=1                            no hooks, for what you start with it")
        out.say("  reprieve config set hook.on_failure allow      steps run even without a checkpoint")
        out.say("  reprieve unprotect                             no hooks, for good")
    return 0 if all(finding.level == "ok" for finding in findings) else 1


def _helper(args: Parsed) -> list[Finding]:
    try:
        settings = config.load()
    except ReprieveError:
        return []  # said above
    pid = running(places.home())
    if pid:
        text = f"runs (pid {pid}), off with: reprieve config set helper off"
    elif settings.helper:
        text = "none runs; commands start Python themselves"
    else:
        text = "switched off"
    found = [Finding("ok", "helper", text)]
    if pid:
        found += _watch(args, is_wanted=settings.helper_watch)
    return found


def _watch(args: Parsed, *, is_wanted: bool) -> list[Finding]:
    """Whether a checkpoint of this folder can do without looking at all of it."""
    if not is_wanted:
        return [Finding("ok", "watch", "switched off: every checkpoint looks at the whole folder")]
    try:
        with open_workspace(args.start) as ws:
            is_followed, text = followed(places.home(), ws.root)
    except ReprieveError:
        return []  # said above
    if is_followed:
        return [Finding("ok", "watch", f"the helper follows this folder ({text})")]
    if "was not noticed" in text:
        hint = "please report it; to do without: reprieve config set helper_watch off"
        return [Finding("warn", "watch", f"{text}; the helper no longer follows this folder", hint)]
    return [Finding("ok", "watch", f"every checkpoint looks at the whole folder{': ' + text if text else ''}")]


def _agents(args: Parsed) -> list[Finding]:
    seen: dict[str, str] = {}
    try:
        with open_workspace(args.start) as ws:
            seen = {name: humane.age(at) for name, at in last_seen(ws.timeline).items()}
    except ReprieveError:
        seen = {}  # what is wrong with the store is said above
    return diagnose_agents(this_machine(args.start), records=records(), seen=seen)
