"""Record what known commands do outside of the folder: by the rule catalog, what was there before, and the way back.

    match ─▶ account, captures before ─▶ intent ─▶ the command, by whoever runs it ─▶ captures after ─▶ outcome, inverse

A look is a capture on both sides. If the looks see no difference, the command changed nothing and there is nothing to
undo. If what it takes to undo cannot be learned, the effect is recorded as irreversible and says why.
"""

from __future__ import annotations

import os

from reprieve.app import effects, journals
from reprieve.effects import account as accounts
from reprieve.effects import looks
from reprieve.effects.command import environment, found, inverse_of
from reprieve.errors import Refused, Usage
from reprieve.model.effect import DONE, IRREVERSIBLE, READ, REFUSED, UNKNOWN, EffectDraft
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.model.effect import Json
    from reprieve.policy.catalog import Capture, Catalog, CommandMatch

    Captured = dict[str, str | tuple[str, ...]]

NOTHING_CHANGED = "the command changed nothing, so there is nothing to undo"


class Watched(Value):
    """A command whose effect is being recorded."""

    effect: str  # id
    argv: tuple[str, ...]


def catalog_of() -> Catalog:
    """The rules that are shipped, and the user's own beside the configuration; never the tree's."""
    from reprieve.app import places
    from reprieve.policy import catalog

    own = os.path.join(os.path.dirname(places.user_config()), "catalog")
    return catalog.load((own,) if os.path.isdir(own) else ())


def begin(
    ws: Workspace,
    argv: Sequence[str],
    *,
    cwd: str,
    rules: Catalog,
    call: str = "",
    is_theirs: bool = False,
    variables: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Watched | None:
    """Capture what it takes to undo the command, and make its intent durable. None if it is no known effect.

    `is_theirs`: the command is run by whoever called us, and not by this process. `variables`: what the text before it
    sets in its environment. `launcher`: the words that it is started through, such as sudo.
    """
    match = rules.match_command(argv, launcher=launcher)
    if match is None or match.rule.cls == READ or (match.rule.files and _is_inside(ws, _folder(argv, cwd))):
        return None
    from reprieve.policy.redact import redact, redact_words
    from reprieve.policy.unkept import WHY, needs_secret

    why, captured = WHY if needs_secret(argv, rules) else "", {}
    account: Json | None = None
    if not why and match.rule.inverse:
        try:
            account = _account(ws, match, cwd, variables or {}, launcher)
            captured = _capture(match, "before", cwd, environment((), account))
        except Refused as e:
            why = e.message
    shown = redact_words(argv)
    text = redact(" ".join(shown))
    request: Json = {"argv": shown, "cwd": cwd, "captured": dict(captured)}
    if account is not None:
        request |= {"account": account, "stamps": accounts.stamps(account)}
    if launcher:
        request["launcher"] = list(launcher)
    if why:
        request["why_not"] = why
    with effects.journal_of(ws, is_theirs=is_theirs) as journal:
        draft = EffectDraft(
            "command",
            match.rule.cls if match.rule.inverse and not why else IRREVERSIBLE,
            _resource(rules.match_command(shown) or match.replace(items=())),
            text[:500],
            request=request,
            rule=match.rule.id,
            call=f"{call}/{match.rule.id}/{text}" if call else "",
            fingerprint=f"command {cwd} {text}",
        )
        effect = journal.begin(draft, journals.place(ws), is_fork=True)
    return Watched(effect.id, tuple(argv))


def finish(ws: Workspace, watched: Watched, *, exit_code: int | None, rules: Catalog) -> None:
    """Write down what became of it; None: nobody knows."""
    with effects.journal_of(ws) as journal:
        effect = journal.get(watched.effect)
        request = effect.request or {}
        cwd = str(request.get("cwd", ""))
        why = str(request.get("why_not", ""))
        launcher = request.get("launcher")
        match = rules.match_command(watched.argv, launcher=launcher if isinstance(launcher, list) else ())
        if exit_code is None or (match is None and not why):
            journal.finish(effect.id, UNKNOWN, detail="its end was not seen")
            return
        inverse: Json | None = None
        account = request.get("account")
        if isinstance(account, dict) and not why:
            why = _why_another(account, request.get("stamps"), journal.log.fingerprint)
        is_changed = True
        if match is not None and match.rule.inverse and not why:
            try:
                assert isinstance(account, dict)
                inverse = _inverse(match, _kept(request), cwd, journals.trees(ws), account)
                is_changed = inverse is not None
            except (Refused, Usage) as e:
                why = e.message
        if exit_code != 0:
            # Many commands fail in part, and of a line it may have been another one that failed. So unless a look shows
            # that nothing happened, what there is to undo is kept, and a person decides
            if not is_changed:
                journal.finish(effect.id, REFUSED, detail=f"exit code {exit_code}, and nothing has changed")
            else:
                journal.finish(effect.id, UNKNOWN, detail=f"exit code {exit_code}", inverse=inverse)
            return
        if not is_changed:
            journal.finish(effect.id, DONE, detail=NOTHING_CHANGED, inverse=None, cls=READ)
            return
        cls = effect.cls if inverse is not None else IRREVERSIBLE
        journal.finish(effect.id, DONE, detail=why, inverse=inverse, cls=cls)


def _account(
    ws: Workspace, match: CommandMatch, cwd: str, variables: Mapping[str, str], launcher: Sequence[str]
) -> Json:
    """Where the command acts. Raises Refused if an inverse could not act there."""
    from reprieve.policy.redact import redact

    def is_secret(name: str, value: str) -> bool:
        return redact(text := f"{name}={value}") != text

    given = accounts.Given(
        (*match.prefix[len(launcher) :], *match.carried),
        match.rule.sub,
        os.path.abspath(cwd),
        tuple(variables.items()),
        tuple(launcher),
    )
    with effects.journal_of(ws) as journal:
        return accounts.account_of(
            match.account,
            given,
            environ=os.environ,
            sign=journal.log.fingerprint,
            is_secret=is_secret,
            trees=journals.trees(ws),
        )


def _why_another(account: Json, stamps: object, sign: Callable[[bytes], str]) -> str:
    """Why the command may have acted in another account than it was about to; "" if it did not."""
    now = accounts.stamps(account)
    if isinstance(stamps, list) and now != stamps:
        written = next((str(one[0]) for one in now if isinstance(one, list) and one not in stamps), "its configuration")
        return f"{written} changed while the command ran, so in which account it acted is not known"
    return accounts.differs(account, environ=os.environ, sign=sign)


def _inverse(match: CommandMatch, captured: Captured, cwd: str, trees: Sequence[str], account: Json) -> Json | None:
    """The frozen inverse; None if the looks see no change. Raises Refused and Usage."""
    from reprieve.policy.catalog import instantiate
    from reprieve.policy.catalog.template import reading

    captured = {**captured, **_capture(match, "after", cwd, environment((), account), captured)}
    made = instantiate(match, captured)
    if not made.steps:
        return None
    seen = [looks.frozen(found(one.capture.run), reading(one.capture), one.before, one.after) for one in made.looks]
    return inverse_of(
        *(step.argv for step in made.steps),
        cwd=cwd,
        stdin=[step.stdin for step in made.steps],
        is_idempotent=match.rule.is_idempotent,
        seen=seen,
        settle_s=match.rule.settle_s,
        within=trees,
        account=account,
    )


def _capture(
    match: CommandMatch, when: str, cwd: str, env: Mapping[str, str], before: Captured | None = None
) -> Captured:
    """The values by name. A look that is only compared is kept as a hash: the journal need not hold what it prints."""
    from reprieve.policy.catalog import captures, read_capture
    from reprieve.policy.catalog.template import compared
    from reprieve.policy.redact import redact

    known: Captured = dict(before or {})
    values: Captured = {}
    outputs: dict[tuple[str, ...], tuple[int, bytes, bytes]] = {}  # several captures may read the same output
    hashed = compared(match.rule)
    for capture in captures(match, when=when, known=known):
        if capture.run not in outputs:
            outputs[capture.run] = _printed(capture, cwd, env)
        code, output, errors = outputs[capture.run]
        value = read_capture(capture, output, code, errors)
        if capture.name.split(".")[1] in hashed:
            value = looks.digest(value) if isinstance(value, str) else tuple(map(looks.digest, value))
        elif redact(text := value if isinstance(value, str) else "\n".join(value)) != text:
            raise Refused("what was there before holds a secret, which the journal does not keep")
        known[capture.name] = values[capture.name] = value
    return values


def _printed(capture: Capture, cwd: str, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    try:
        return looks.printed_by(found(capture.run), cwd=cwd, env=env)
    except (OSError, Usage) as e:
        raise Refused(f"{capture.run[0]} could not be started, so what it takes to undo is not known") from e


def _kept(request: Json) -> Captured:
    values = request.get("captured")
    assert isinstance(values, dict)
    return {str(k): tuple(map(str, v)) if isinstance(v, list) else str(v) for k, v in values.items()}


def _resource(match: CommandMatch) -> str:
    given = {
        *(arg.rstrip("?+*") for arg in match.rule.args or ()),
        *(f"opt.{o.lstrip('-')}" for o in match.rule.values),
    }
    names = [str(value) for item in match.items for name, value in item if name in given]
    return f"{match.rule.program}:{' '.join(names)}"


def _folder(argv: Sequence[str], cwd: str) -> str:
    """Where a command works: -C leads elsewhere."""
    for at, word in enumerate(argv[:-1]):
        if word == "-C":
            return os.path.join(cwd, argv[at + 1])
    return cwd


def _is_inside(ws: Workspace, cwd: str) -> bool:
    root = os.fsdecode(ws.root)
    here = os.path.realpath(cwd)
    return here == root or here.startswith(root + "/")
