"""Effects of a workspace: record them, list them, keep them, and have them undone together with the files."""

from __future__ import annotations

import os
from contextlib import contextmanager

from reprieve.app import journals
from reprieve.app.beside import find_effect
from reprieve.effects.journal import Journal
from reprieve.errors import Conflict, Refused
from reprieve.model.effect import COMPENSABLE, HELD, IRREVERSIBLE, KEPT, UNDONE, EffectDraft
from reprieve.model.plan import CANCEL_EFFECT, CLASH, KEEP_EFFECT, UNDO_EFFECT, EffectAction, EffectOutcome
from reprieve.model.timeline import UNDO
from reprieve.model.window import field
from reprieve.rollback.agreed import only_agreed
from reprieve.rollback.effects import hash_of_plan, plan_effects, undo_effects
from reprieve.rollback.plan import make_plan
from reprieve.rollback.repository import PUSHED
from reprieve.store.hashing import sha256

_UNDONE_BY = (UNDO_EFFECT, CANCEL_EFFECT)  # verbs of what a yes undoes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from reprieve.app.annexes import Annex
    from reprieve.app.moves import Moves
    from reprieve.app.workspace import Workspace
    from reprieve.model.effect import Effect, Json
    from reprieve.model.plan import Plan, Report
    from reprieve.policy.approvals import Approvals


@contextmanager
def journal_of(ws: Workspace, *, is_theirs: bool = False) -> Iterator[Journal]:
    """The workspace's journal, for as long as the block lasts. `is_theirs`: who called us does what is begun."""
    journal = journals.open_journal(ws, is_theirs=is_theirs)
    try:
        yield journal
    finally:
        journal.log.close()


def approvals_of(journal: Journal, ws: Workspace) -> Approvals:
    """What waits for a person here."""
    from reprieve.policy.approvals import Approvals

    return Approvals(journal.log, ws.id, clock=ws.clock)


# -- recording what happened


def record_http(
    ws: Workspace,
    *,
    method: str,
    url: str,
    undo: Mapping[str, object] | None = None,
    response: object = None,
    description: str = "",
    resource: str = "",
    depends: Sequence[str] = (),
    is_agents_word: bool = False,
) -> Effect:
    """Note an HTTP call that was made, with the request that reverses it; {response.NAME} in it is filled in.

    `undo`: method, url, headers (by credential reference), json, form or text, is_idempotent, is_gone_done (it was seen
    at that URL: 404 means gone). `is_agents_word`: an agent says so, whether or not a window of its is open.
    """
    from reprieve.app.kept import with_references
    from reprieve.effects.inverses import http_inverse
    from reprieve.policy.redact import redact, redact_url

    with journal_of(ws) as journal:
        sign = journal.log.fingerprint
        inverse = http_inverse(undo, forward=url, response=response, sign=sign) if undo else None
        inverse = with_references(inverse, sign) if inverse is not None else None
        draft = EffectDraft(
            "http",
            COMPENSABLE if inverse else IRREVERSIBLE,
            redact(resource) or redact_url(_made(inverse) or url.partition("?")[0]),
            redact(description) or f"{method.upper()} {redact_url(url)}",
            tuple(depends),
            inverse,
            {"method": method.upper(), "url": redact_url(url)},
            is_trusted=not (is_agents_word or _is_agent(ws)),
        )
        return journal.record(draft, journals.place(ws))


def _made(inverse: Json | None) -> str:
    """Where what is deleted again was made: if that fails, others made in the same place are none the worse."""
    return str(inverse["url"]).partition("?")[0] if inverse is not None and inverse["method"] == "DELETE" else ""


def record_command(
    ws: Workspace,
    argv: Sequence[str],
    *,
    description: str,
    cwd: str,
    env: Sequence[str] = (),
    resource: str = "",
    depends: Sequence[str] = (),
    is_idempotent: bool = False,
    is_agents_word: bool = False,
) -> Effect:
    """Note something that was done, with the command that reverses it. `is_agents_word`: an agent says so."""
    from reprieve.effects.command import inverse_of
    from reprieve.policy.redact import redact, redact_words

    inverse = inverse_of(argv, cwd=cwd, env=env, is_idempotent=is_idempotent, within=journals.trees(ws))
    if redact_words(argv) != list(argv):
        raise Refused(
            "the command seems to hold a secret, which the journal does not keep",
            hints=["have it read a variable (--env NAME), a file or a credential store"],
        )
    with journal_of(ws) as journal:
        draft = EffectDraft(
            "command",
            COMPENSABLE,
            resource,
            redact(description),
            tuple(depends),
            inverse,
            is_trusted=not (is_agents_word or _is_agent(ws)),
        )
        return journal.record(draft, journals.place(ws))


def record_sql(
    ws: Workspace,
    database: str,
    undo: Sequence[tuple[str, Sequence[object], int]],
    *,
    description: str,
    module: str = "sqlite3",
    resource: str = "",
    depends: Sequence[str] = (),
    is_idempotent: bool = False,
) -> Effect:
    """Note a change of a database, with the statements that reverse it: (SQL, values, rows it must change; -1: any).

    The old values belong into each WHERE, so that a row that somebody changed since is left alone. Of DROP TABLE and
    TRUNCATE the rows are those that must be in the table, of DROP COLUMN those with a value; none if it is -1.
    `database` is a path (sqlite3) or a credential reference (psycopg): where that leads is remembered, and no other
    database is written to. An SQLite database in the tree, or tracked, comes back with its files, and the statements
    are not needed.
    Raises Usage for a statement that a ROLLBACK may not take back, Refused if the reference leads nowhere.
    `is_idempotent`: they may be run again when nobody knows whether they were.
    """
    from reprieve.app.inner_effects import WITH_FILES, is_protected
    from reprieve.app.kept import must_hold_no_secret
    from reprieve.effects.sql import place_of, sql_inverse
    from reprieve.model.effect import RESTORABLE
    from reprieve.policy.redact import redact

    inverse = sql_inverse(database, undo, module=module, is_idempotent=is_idempotent)
    must_hold_no_secret(undo)
    place = place_of(inverse)
    # both would undo it: statements change the file under the plan that is to put it back, which then leaves it alone
    is_covered = module == "sqlite3" and is_protected(ws, place or str(inverse["database"]))
    with journal_of(ws) as journal:
        if place:
            inverse["place"] = journal.log.fingerprint(os.fsencode(place))
        draft = EffectDraft(
            "sql",
            RESTORABLE,
            resource or f"{module}:{inverse['database']}",
            redact(description),
            tuple(depends),
            None if is_covered else inverse,
        )
        return journal.record(draft, journals.place(ws), covered=WITH_FILES if is_covered else "")


def _is_agent(ws: Workspace) -> bool:
    """Whether an agent's window is open: then what is recorded is the agent's word."""
    return bool(journals.place(ws).window)


# -- looking


def effects_since(ws: Workspace, ref: str | None, *, is_open: bool = False) -> Iterator[Effect]:
    """Effects since that point (None: all), newest first."""
    since = ws.resolve(ref).seq if ref else 0  # first: a name that means nothing is an error, journal or not
    if not journals.has_journal(ws):
        return
    with journal_of(ws) as journal:
        yield from journal.effects(since=since, is_open=is_open)


def keep(ws: Workspace, step: str | None) -> list[Effect]:
    """Accept effects: their inverses are retired. None: all up to now; else an effect's id or a step."""
    one = find_effect(ws, step) if step is not None else None
    is_in = _in_step(ws, step) if step is not None and one is None else lambda effect: True
    if not journals.has_journal(ws):
        return []
    with journal_of(ws) as journal:
        if one is not None:
            return [journal.keep(one.id)]
        chosen = [effect for effect in journal.effects(is_open=True) if is_in(effect)]
        return [journal.keep(effect.id) for effect in chosen if effect.state != HELD]


def _in_step(ws: Workspace, name: str) -> Callable[[Effect], bool]:
    from reprieve.app.steps import find_step, with_inner

    step = find_step(ws.timeline, name, now_ns=ws.clock())
    keys = with_inner(ws.timeline, frozenset((step.key, *step.keys)), step.since)
    until = step.entry.seq if step.entry is not None else 1 << 62

    def is_in(effect: Effect) -> bool:
        return effect.window in keys or (not effect.window and step.since <= effect.at < until)

    return is_in


# -- taking back


class Side:
    """The effects' part of one rollback: planned with the files, carried out before them."""

    def __init__(self, ws: Workspace, journal: Journal, chosen: Iterator[Effect], *, spares_since: str = "") -> None:
        """`spares_since`: what a person has held since that entry stays held."""
        self.ws, self.journal, self._spares_since = ws, journal, spares_since
        self.drivers = journals.drivers(journal, ws.memory, ws.root)
        self._chosen: Iterator[Effect] | None = chosen
        self._actions: tuple[EffectAction, ...] = ()
        self._has_windows: bool | None = None  # asked for only if somebody's mail depends on it
        self.outcomes: list[EffectOutcome] = []

    def stream(self) -> Iterator[EffectAction]:
        """The plan, each action as soon as it is known; nothing of it is kept."""
        chosen, self._chosen = self._chosen, None
        assert chosen is not None
        spared = self._is_persons if self._spares_since else None
        return plan_effects(self.journal, chosen, self.drivers, now_ns=self.ws.clock(), is_persons=spared)

    def _is_persons(self, effect: Effect) -> bool:
        from reprieve.app.authorship import story, was_outside

        if not was_outside(self.ws.timeline, effect):
            return False
        if self._has_windows is None:
            self._has_windows = story(self.ws.capture, self.ws.resolve(self._spares_since).seq, None).has_windows
        return self._has_windows

    @property
    def actions(self) -> tuple[EffectAction, ...]:
        """The whole plan."""
        if self._chosen is not None:
            self._actions = tuple(self.stream())
        return self._actions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.log.close()

    def joined(self, plan: Plan) -> Plan:
        """The plan of the files with the effects in it; its id covers both."""
        if not self.actions:
            return plan
        both = sha256(plan.id.encode() + hash_of_plan(self.actions, self.journal, sha256))
        return plan.replace(id=both.hex()[: len(plan.id)], effects=self.actions)

    def unpushed(self) -> frozenset[str]:
        """Remote branches whose pushes it undoes, as git names them."""
        found: set[str] = set()
        for action in self.actions:
            effect = self.journal.get(action.effect)
            steps = (effect.inverse or {}).get("steps")
            if action.verb == UNDO_EFFECT and effect.rule.startswith("git.push.") and isinstance(steps, list):
                for step in steps:  # git push … REMOTE OLD:refs/heads/NAME
                    *_, remote, refspec = step["argv"]
                    found |= {f"{remote}/{name}" for name in refspec.partition(":refs/heads/")[2:] if name}
        return frozenset(found)

    def refuse_conflicts(self) -> None:
        """Raises Conflict before anything is touched."""
        clashes = [action for action in self.actions if action.verb == CLASH]
        if clashes:
            raise Conflict(
                f"{len(clashes)} {'effect is' if len(clashes) == 1 else 'effects are'} not as the agent left them;"
                " nothing was touched",
                details=[f"{action.effect}  {action.description}: {action.reason}" for action in clashes],
                hints=["leave them and take back the rest: --on-conflict keep", "files alone: --files"],
                data={"conflicts": [action.effect for action in clashes]},
            )

    def need_approval(self) -> None:
        """Raises Refused while a person has not approved what an agent wrote, or what policy asks about."""
        need_approval(self.ws, self.journal, self.actions)

    def leave(self, why: str) -> None:
        """Do nothing, and say so: `why` of what could be undone."""
        self.outcomes = [
            EffectOutcome(a.effect, KEPT, a.reason, a.description, a.account)
            if a.verb == KEEP_EFFECT
            else EffectOutcome(a.effect, "pending", why if a.verb in _UNDONE_BY else a.reason, a.description, a.account)
            for a in self.actions
        ]

    def carry_out(self) -> None:
        """Undo them, newest first."""
        self.outcomes = undo_effects(
            self.journal,
            self.actions,
            self.drivers,
            now_ns=self.ws.clock(),
            cancels=journals.cancels(self.ws, self.journal),
        )


def need_approval(
    ws: Workspace, journal: Journal, actions: Sequence[EffectAction], *, is_only_a_look: bool = False
) -> None:
    """Raises Refused while a person has not approved the inverses that an agent wrote, or that policy asks about.

    The approval is taken, and can't be taken twice, unless it `is_only_a_look`.
    """
    doubtful = [a for a in actions if a.verb == UNDO_EFFECT and _is_doubtful(ws, journal, a)]
    if not doubtful:
        return
    hash = hash_of_plan(doubtful, journal, sha256).hex()
    approvals = approvals_of(journal, ws)
    if approvals.has(hash) if is_only_a_look else approvals.use(hash):
        return
    action = "undo effects: " + "; ".join(f"{a.description}: {a.reason}" for a in doubtful)
    asked = approvals.ask(hash, action, doubtful[0].cls)
    is_always = ws.config.policy_approve_undo == "always"
    why = "wait for an approval (policy.approve_undo is always)" if is_always else "would be run on an agent's word"
    raise Refused(
        f"{len(doubtful)} of the inverses {why}; nothing was touched",
        details=[f"{a.effect}  {a.description}: {a.reason}" for a in doubtful],
        hints=[
            f"look at them, then in a terminal of your own: reprieve approve {asked.id}",
            "files alone: --files",
        ],
        data={"approval": asked.id, "hash": hash},
    )


def _is_doubtful(ws: Workspace, journal: Journal, action: EffectAction) -> bool:
    if ws.config.policy_approve_undo == "always":
        return True
    from reprieve.effects.scripts import starts_others

    effect = journal.get(action.effect)
    inverse = effect.inverse or {}
    if inverse.get("kind") == "mcp":
        return not effect.is_trusted
    steps = inverse.get("steps")
    if effect.is_trusted or not isinstance(steps, list):
        return False
    # what lies where an agent works may be the agent's own text, and no less than what it tells a shell
    return bool(inverse.get("scripts")) or any(starts_others(step["argv"]) for step in steps)


def move_world(
    ws: Workspace,
    make: Callable[[Moves], Plan],
    beside: Callable[[Moves, Annex], Plan | None] | None,
    outside: Callable[[Journal], Iterator[Effect]],
    *,
    dry_run: bool,
    expect: str,
    effects: str,
    everything: bool,
    on_conflict: str,
) -> tuple[Plan, Report | None]:
    """One plan over files and effects. Effects first, newest first, then the files in one move: so an inverse still
    finds the tree that its effect was made from. What changes in the tree meanwhile stays and is named."""
    with ws.store.lock(ws.id), journal_of(ws) as journal:
        files, _ = ws.move_files(make, beside, dry_run=True, expect="")
        side = Side(ws, journal, outside(journal), spares_since="" if everything else files.target)
        is_pushed = any(gap.reason.startswith(PUSHED) for gap in files.not_undone)
        if effects == "undo" and is_pushed and (unpushed := side.unpushed()):

            def told(moves: Moves) -> Plan:
                moves.unpushed = unpushed
                return make(moves)

            def told_beside(moves: Moves, annex: Annex) -> Plan | None:
                moves.unpushed = unpushed
                return beside(moves, annex) if beside is not None else None

            # commits that nobody else will have any more need not stay
            files, _ = ws.move_files(told, told_beside if beside is not None else None, dry_run=True, expect="")
        whole = side.joined(files)
        if dry_run:
            return whole, None
        if expect and whole.id != expect:
            raise Conflict(
                "the folder or the effects changed since the plan was made; nothing was touched",
                hints=["look at the new plan and confirm again"],
            )
        if files.conflicts:
            from reprieve.rollback.execute import conflict

            raise conflict(files)
        if effects != "undo":
            side.leave("effects outside of the folder are undone with --yes")
        else:
            if on_conflict == "abort":
                side.refuse_conflicts()
            side.need_approval()
            side.carry_out()

        # inverses may take minutes: what somebody changed meanwhile is not in the plan that was agreed to
        def made(moves: Moves) -> Plan:
            return only_agreed(make(moves), files)

        def made_beside(moves: Moves, annex: Annex) -> Plan | None:
            plan = beside(moves, annex) if beside is not None else None
            return None if plan is None else only_agreed(plan, files, annex.path)

        done, report = ws.move_files(made, made_beside if beside is not None else None, dry_run=False, expect="")
        assert report is not None
        return whole.replace(actions=done.actions), report.replace(effects=tuple(side.outcomes))


def undo_one(
    ws: Workspace, effect: Effect, *, how: str, tail: bool, on_conflict: str, dry_run: bool, expect: str
) -> tuple[Plan, Report | None]:
    """Undo an effect by itself, no file. `how` as `effects` of `rollback`.

    `tail`: take along the later ones that stand on it; else raises Conflict.
    """
    if effect.undo_state == KEPT or not (effect.is_open or effect.undo_state == UNDONE):
        raise Refused(
            f"'{effect.description or effect.id}' is {effect.undo_state or effect.state}; there is nothing to undo",
            hints=[f"see it whole: reprieve show {effect.id}"],
            data={"effect": effect.id, "state": effect.state, "undo_state": effect.undo_state},
        )

    def make(moves: Moves) -> Plan:
        label = effect.description or effect.id
        return make_plan(UNDO, target="", label=label, differences=(), hash_of=sha256, of=effect.id)

    def outside(journal: Journal) -> Iterator[Effect]:
        later = _stands_on(journal, effect)
        if later and not tail:
            raise Conflict(
                f"later effects stand on '{effect.description or effect.id}'; nothing was touched",
                details=[f"{each.id}  {each.description}" for each in later],
                hints=[f"undo them as well: reprieve undo {effect.id} --tail"],
                data={"dependants": [each.id for each in later]},
            )
        return iter((*later, effect))

    return move_world(
        ws,
        make,
        None,
        outside,
        dry_run=dry_run,
        expect=expect,
        effects="list" if how == "no" else how,
        everything=True,
        on_conflict=on_conflict,
    )


def _stands_on(journal: Journal, effect: Effect) -> list[Effect]:
    """Later effects on something inside of what this one changed, or that say that they need it; newest first."""
    found: list[Effect] = []
    for later in journal.effects(since=effect.at, is_open=True, oldest_first=True):
        if later.seq > effect.seq and any(
            below.resource
            and (below.resource in later.depends or later.resource.startswith(below.resource.rstrip("/") + "/"))
            for below in (effect, *found)
        ):
            found.append(later)
    return found[::-1]


def stays_undone(ws: Workspace, redo: Plan) -> tuple[EffectOutcome, ...]:
    """Effects that the move undid which is now redone: nothing does them again, a refund can't be refunded."""
    move = ws.timeline.get(redo.of)
    target = ws.timeline.get(field(move.data, "target")) if move is not None else None
    if target is None:
        return ()
    with journal_of(ws) as journal:
        return tuple(
            EffectOutcome(effect.id, UNDONE, "it was undone and is not done again", effect.description)
            for effect in journal.effects(since=target.seq)
            if effect.undo_state == UNDONE
        )


def compensate(ws: Workspace, ref: str | None, *, everything: bool = False) -> Side | None:
    """The effects since ref (default: the latest checkpoint), to be undone alone; None if there never was one.

    `everything`: also what a person holds.
    """
    from reprieve.app import refs

    named = ws.resolve(ref) if ref else None
    if not journals.has_journal(ws):
        return None
    target = named or refs.latest(ws.timeline)
    journal = journals.open_journal(ws)
    chosen = journal.effects(since=target.seq, is_open=True)
    return Side(ws, journal, chosen, spares_since="" if everything else target.id)


def json_of(effect: Effect) -> Json:
    """An effect as the contract's JSON."""
    from reprieve.app.render import time_text
    from reprieve.effects.account import words_of

    return {
        "id": effect.id,
        "seq": effect.seq,
        "kind": effect.kind,
        "class": effect.cls,
        "resource": effect.resource,
        "state": effect.state,
        "undo_state": effect.undo_state or None,
        "description": effect.description,
        "account": words_of(effect.inverse) or words_of(effect.request),
        "inverse": effect.inverse,
        "actor": effect.actor,
        "step": effect.step,
        "created_at": time_text(effect.created_at),
        "detail": effect.detail,
        "depends": list(effect.depends),
        "trusted": effect.is_trusted,
    }
