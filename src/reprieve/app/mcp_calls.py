"""Record the tool calls that go to another MCP server: what each may do, what it did, and how it is taken back.

    judge ─▶ read: passes │ ask, refuse: answered in the server's place
          ─▶ run: window (checkpoint) ─▶ intent (durable) ─▶ the call, by whoever has the wire ─▶ outcome ─▶ sealed

Sends nothing. A call whose changes are all files of the workspace has no inverse of its own: the checkpoints around it
are (`covered`), so nothing is undone twice. The workspace is opened for each step, as a hook does: settings and history
are those of now, and nothing is held while a server works.
"""

from __future__ import annotations

import os

from reprieve.app import effects, journals
from reprieve.app.commands import catalog_of
from reprieve.app.hook_words import describe, note_for, title
from reprieve.app.http_calls import hidden
from reprieve.app.run import outer_window
from reprieve.effects import credentials
from reprieve.errors import Refused, Usage
from reprieve.model.actor import of_session, plain
from reprieve.model.effect import COMPENSABLE, DONE, IRREVERSIBLE, READ, REFUSED, UNKNOWN, EffectDraft
from reprieve.model.hookevent import BEFORE, HookEvent
from reprieve.model.value import Value
from reprieve.policy import tools as policy
from reprieve.policy.decide import ASK, RUN
from reprieve.policy.redact import for_people, is_sensitive, redact, redact_words
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reprieve.app.workspace import Made, Workspace
    from reprieve.effects.mcp_client import Answer
    from reprieve.model.effect import Json
    from reprieve.model.window import Window
    from reprieve.policy.catalog import ToolRule
    from reprieve.policy.tools import ToolVerdict

PASS, GO, WAIT = "pass", "go", "wait"


class Server(Value):
    """The server behind the gateway, as a person configured it: a command with its folder, or a URL."""

    argv: tuple[str, ...] = ()
    cwd: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # values or credential references, as given
    variables: Mapping[str, str] = {}  # what the command is started with
    passed: tuple[str, ...] = ()  # those of them that it needs when it is started again

    @property
    def line(self) -> str:
        """For people."""
        import shlex

        return redact(self.url or shlex.join(self.argv))

    @property
    def names(self) -> tuple[str, ...]:
        """What the catalog may know it by."""
        if self.url:
            from urllib.parse import urlsplit

            return (urlsplit(self.url).hostname or "",)
        return policy.server_names(self.argv)


class Call(Value):
    """One call of a tool. `id` is unique over all sessions."""

    id: str
    tool: str
    arguments: Mapping[str, object]


class Look(Value):
    """What is to happen to a call: pass (it only reads), go, or wait for a person's yes to `approval`."""

    verb: str
    verdict: ToolVerdict
    approval: str = ""


class Begun(Value):
    """A call that is under way."""

    call: Call
    effect: str
    window: Window
    label: str
    is_covered: bool
    rule: str
    cls: str


class ToolCalls:
    """The recorder of one gateway."""

    def __init__(self, opener: Callable[[], Workspace], server: Server, *, session: str) -> None:
        self._open, self.server, self._session = opener, server, session
        self.client = "mcp"  # who is at the other end, once it said so
        self.roots: tuple[str, ...] = ()  # folders that the client told the server of, all that it ever did

    def look(self, call: Call, tools: Mapping[str, Mapping[str, object]]) -> Look:
        """Judge a call. Uses up the approval that lets it pass. `tools`: what the server lists, by name."""
        with self._open() as ws:
            _, verdict = self._judge(ws, call, tools)
            if verdict.cls == READ:
                return Look(PASS, verdict)
            if verdict.decision == RUN:
                return Look(GO, verdict)
            return self._asked(ws, call, verdict)

    def _asked(self, ws: Workspace, call: Call, verdict: ToolVerdict) -> Look:
        """Go, if a person said yes to exactly this call; else they are asked."""
        with effects.journal_of(ws) as journal:
            approvals = effects.approvals_of(journal, ws)
            hash = self._hash(call)
            if approvals.use(hash):
                return Look(GO, verdict)
            asked = approvals.ask(hash, self.words(call), verdict.cls)
        return Look(WAIT, verdict, asked.id)

    def refusal(self, call: Call, look: Look) -> Refused:
        """What to answer when nobody says yes now."""
        mode = "" if look.verdict.decision == ASK else " Autopilot refuses it."
        return Refused(
            f"{call.tool} was not run: {look.verdict.reason}.{mode}",
            hints=[f"a person allows exactly this call, once: reprieve approve {look.approval}; then make it again"],
            data={"class": look.verdict.cls, "approval": look.approval},
        )

    def words(self, call: Call) -> str:
        """The call in full, for the person who is asked."""
        import json

        shown = json.dumps(hidden(dict(call.arguments)), ensure_ascii=False)
        return f"call {call.tool} of the MCP server {self.server.line} with {shown}"

    def approve(self, look: Look) -> None:
        """A person said yes in their own client: the question in the list is answered as well."""
        with self._open() as ws, effects.journal_of(ws) as journal:
            approvals = effects.approvals_of(journal, ws)
            hash = approvals.decide(look.approval, is_approved=True).hash
            approvals.use(hash)

    def deny(self, call: Call, look: Look) -> Refused:
        """A person said no in their own client: the question is answered. What to tell the agent."""
        with self._open() as ws, effects.journal_of(ws) as journal:
            effects.approvals_of(journal, ws).decide(look.approval, is_approved=False)
        return Refused(f"{call.tool} was not run: a person said no", data={"class": look.verdict.cls})

    def begin(self, call: Call, tools: Mapping[str, Mapping[str, object]], *, is_approved: bool) -> Begun | Look:
        """Checkpoint and intent, both durable when this returns; the call may leave then. Raises ReprieveError.

        A Look: only the checkpoint could tell that this call needs a person's yes, and nothing was begun.
        """
        with self._open() as ws:
            window, label, gaps = self._open_step(ws, call)
            try:
                rule, verdict = self._judge(ws, call, tools, gaps)
                look = self._asked(ws, call, verdict) if verdict.decision != RUN and not is_approved else None
                if look is None or look.verb == GO:
                    return self._intent(ws, call, rule, verdict, window, label)
            except BaseException:  # one that stayed open would take what a person does next for the agent's
                ws.close_window(window, label=f"{label} (not run)")
                raise
            ws.close_window(window, label=f"{label} (not run)")
            return look

    def resume(self, begun: Begun, tools: Mapping[str, Mapping[str, object]]) -> Begun:
        """The next round of a call that its server asked back for: the same effect, in a step of its own."""
        with self._open() as ws:
            window, label, gaps = self._open_step(ws, begun.call)
            try:
                _, verdict = self._judge(ws, begun.call, tools, gaps)
                if begun.is_covered and not verdict.is_covered:
                    raise Refused(f"{begun.call.tool} was not run: {verdict.reason}", data={"class": verdict.cls})
            except BaseException:
                ws.close_window(window, label=f"{label} (not run)")
                raise
            return begun.replace(window=window)

    def finish(
        self,
        begun: Begun,
        tools: Mapping[str, Mapping[str, object]],
        *,
        answer: Answer | None,
        is_modern: bool = False,
        detail: str = "",
    ) -> None:
        """Write down what became of it, and seal its step. `answer` None: nobody knows; `detail` says why."""
        with self._open() as ws:
            try:
                with effects.journal_of(ws) as journal:
                    state, facts = self._outcome(begun, answer, tools, is_modern, detail, journal.log.fingerprint)
                    journal.finish(begun.effect, state, **facts)  # type: ignore[arg-type]
            finally:
                more = " (its end was not seen)" if answer is None else " (failed)" if answer.is_error else ""
                made = ws.close_window(begun.window, label=begun.label + more)
            if begun.is_covered and made.gaps:
                self._look_again(ws, begun, tools, self._paths(ws, made))

    def _look_again(
        self, ws: Workspace, begun: Begun, tools: Mapping[str, Mapping[str, object]], gaps: list[str]
    ) -> None:
        """What it wrote may have become too large for a checkpoint, or was taken out of sight."""
        _, verdict = self._judge(ws, begun.call, tools, gaps)
        if not verdict.is_covered:
            with effects.journal_of(ws) as journal:
                journal.uncover(begun.effect, f"the checkpoint after it does not hold all of it: {verdict.reason}")

    def doubt(self, begun: Begun, why: str) -> None:
        """Write down that nobody may ever know what became of it; its step goes on until `finish`."""
        with self._open() as ws, effects.journal_of(ws) as journal:
            journal.finish(begun.effect, UNKNOWN, detail=why)

    # -- inside

    def _open_step(self, ws: Workspace, call: Call) -> tuple[Window, str, list[str]]:
        """The window of a call, its label, and what the checkpoint before it could not protect."""
        event = self._event(call)
        label = title(describe(event))
        made, window = ws.open_window(
            of_session(plain(self.client), self._session),
            f"call:{plain(call.id)}",
            label=f"before {label}",
            note=note_for(describe(event, is_whole=True)),
            pid=os.getpid(),
            parent=_around(ws),
        )
        return window, label, self._paths(ws, made)

    def _paths(self, ws: Workspace, made: Made) -> list[str]:
        """Of what a checkpoint could not protect."""
        return [os.path.join(os.fsdecode(ws.root), os.fsdecode(gap.path)) for gap in made.gaps]

    def _judge(
        self, ws: Workspace, call: Call, tools: Mapping[str, Mapping[str, object]], gaps: Sequence[str] = ()
    ) -> tuple[ToolRule | None, ToolVerdict]:
        rule = catalog_of().match_tool(self.server.names, call.tool)
        outside: str | None = ""
        if rule is not None and rule.files and not self.server.url:
            outside = policy.uncovered(
                rule,
                call.arguments,
                argv=self.server.argv,
                cwd=self.server.cwd,
                variables=self.server.variables,
                tops=[os.fsdecode(ws.root)],
                gaps=gaps,
                roots=self.roots,
                is_left_out=lambda path: _is_left_out(ws, path),
            )
        said = tools.get(call.tool, {}).get("annotations")
        verdict = policy.judge_tool(
            call.tool,
            rule=rule,
            annotations=said if isinstance(said, dict) else None,
            outside=outside,
            mode=ws.config.policy_mode,
            is_trusted=self._is_trusted(ws.config.policy_trusted_servers),
            option=policy.option_in(dict(call.arguments)),
        )
        return rule, verdict

    def _is_trusted(self, trusted: Sequence[str]) -> bool:
        import shlex

        line = self.server.url or shlex.join(self.server.argv)
        return any(line == one or (not self.server.url and line.startswith(f"{one} ")) for one in trusted)

    def _intent(
        self, ws: Workspace, call: Call, rule: ToolRule | None, verdict: ToolVerdict, window: Window, label: str
    ) -> Begun:
        request: Json = {
            "server": self.server.line,
            "tool": call.tool,
            "arguments": for_people(hidden(dict(call.arguments))),
        }
        draft = EffectDraft(
            "mcp",
            verdict.cls,
            f"mcp:{self.server.line}",
            redact(label),
            request=request,
            rule=rule.id if rule is not None else "",
            call=f"mcp:{call.id}",
            is_trusted=bool(self.server.url) and rule is not None,
        )
        place = journals.place(ws).replace(window=window.id, step=window.step, actor=window.actor)
        with effects.journal_of(ws) as journal, journal.log.transaction():
            effect = journal.begin(draft, place, is_fork=True)
            if verdict.is_covered:
                journal.cover(effect.id)
        rule_id = rule.id if rule is not None else ""
        return Begun(call, effect.id, window, label, verdict.is_covered, rule_id, verdict.cls)

    def _outcome(
        self,
        begun: Begun,
        answer: Answer | None,
        tools: Mapping[str, Mapping[str, object]],
        is_modern: bool,
        detail: str,
        sign: Callable[[bytes], str],
    ) -> tuple[str, Json]:
        if answer is None:
            return UNKNOWN, {"detail": detail}
        if answer.is_error:
            said = redact(title(answer.text()))
            # a tool that failed may have done a part of its work; of a covered one that part is in the checkpoints
            is_refused = answer.is_refused or (begun.is_covered and answer.result is not None)
            return REFUSED if is_refused else UNKNOWN, {"detail": f"the server says that it failed: {said}"}
        if begun.is_covered:
            return DONE, {"detail": "its files are in the checkpoints around it"}
        rule = catalog_of().match_tool(self.server.names, begun.call.tool) if begun.rule else None
        content = (answer.result or {}).get("structuredContent")
        undo = policy.undo_of(begun.call.tool, begun.call.arguments, content, rule=rule, tools=tools)
        inverse, why = None, undo.why
        if undo.tool:
            inverse, why = self._inverse(undo, rule, is_modern, sign)
        facts: Json = {"detail": why}
        if inverse is not None:
            facts["inverse"] = inverse
            if undo.is_guess and begun.cls == IRREVERSIBLE:
                facts["cls"] = COMPENSABLE
        elif rule is not None and rule.inverse:
            facts["cls"] = IRREVERSIBLE
        return DONE, facts

    def _inverse(
        self, undo: policy.Undo, rule: ToolRule | None, is_modern: bool, sign: Callable[[bytes], str]
    ) -> tuple[Json | None, str]:
        """The frozen inverse, or why there can be none."""
        if hidden(undo.arguments) != undo.arguments:
            return None, f"{undo.tool} would need what seems to be a secret, which the journal does not keep"
        server: Json
        if self.server.url:
            headers = dict(self.server.headers)
            server = {
                "url": self.server.url,
                "headers": headers,
                "fingerprints": credentials.fingerprints(headers, sign),
            }
            if redact(self.server.url) != self.server.url:
                return None, "the server's URL holds what seems to be a secret, which the journal does not keep"
        else:
            if redact_words(self.server.argv) != list(self.server.argv):
                return None, "the server's command holds what seems to be a secret, which the journal does not keep"
            kept, named = self._environment(rule)
            server = {
                "argv": list(self.server.argv),
                "cwd": self.server.cwd,
                "path": self.server.variables.get("PATH", ""),
                "set": kept,
                "env": named,
            }
        made: Json = {"kind": "mcp", "server": server, "tool": undo.tool, "arguments": undo.arguments}
        return {**made, "is_idempotent": undo.is_idempotent, "is_modern": is_modern}, ""

    def _environment(self, rule: ToolRule | None) -> tuple[dict[str, str], list[str]]:
        """Variables that the server needs again: those without a secret by value, the others by name."""
        kept, named = {}, []
        for name in dict.fromkeys((*(rule.variables if rule is not None else ()), *self.server.passed)):
            value = self.server.variables.get(name)
            if value is None:
                continue
            if is_sensitive(name) or redact(value) != value or redact(f"{name}={value}") != f"{name}={value}":
                named.append(name)
            else:
                kept[name] = value
        return kept, named

    def _hash(self, call: Call) -> str:
        import json

        facts = json.dumps([self.server.argv, self.server.url, call.tool, dict(call.arguments)], sort_keys=True)
        return sha256(b"mcp\0" + facts.encode()).hex()

    def _event(self, call: Call) -> HookEvent:
        shown = for_people(hidden(dict(call.arguments)))
        assert isinstance(shown, dict)
        return HookEvent(self.client, BEFORE, self._session, call_id=call.id, tool=call.tool, arguments=shown)


def _is_left_out(ws: Workspace, path: str) -> bool:
    root = os.path.realpath(os.fsdecode(ws.root))
    inside = os.path.relpath(path, root)
    return inside != "." and not inside.startswith("..") and ws.capture.is_left_out(os.fsencode(inside))


def _around(ws: Workspace) -> str:
    """The window that this call is inside of: that of a run, or of the one call that the agent's own hook has open."""
    outer = outer_window(ws)
    if outer:
        return outer
    _, _, now = ws.capture.author()
    others = now.replace(open=tuple(window for window in now.open if window.pid != os.getpid())).lineages()
    return others[0][0] if len(others) == 1 else ""


def server_of_command(argv: Sequence[str], *, cwd: str, variables: Mapping[str, str], passed: Sequence[str]) -> Server:
    """The server of a command, its program looked up now: what is put into PATH later is not it. Raises Usage."""
    import shutil

    from reprieve.effects.command import environment

    named = os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0]  # a path means what it means to the server
    program = shutil.which(named, path=variables.get("PATH"))
    if program is None:
        raise Usage(f"there is no program '{argv[0]}'", hints=["give its whole path"])
    try:
        environment(passed)
    except Refused as e:
        raise Usage(e.message) from e
    return Server((os.path.abspath(program), *argv[1:]), cwd, variables=dict(variables), passed=tuple(passed))


def server_of_url(url: str, headers: Sequence[str]) -> Server:
    """The server at a URL; headers as 'Name: value', secrets by reference. Raises Usage, Refused."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Usage(f"'{url}' is not an http or https URL")
    if parts.username or parts.password:
        raise Usage(
            "a URL with a password in it would end up in the journal", hints=["--header 'Authorization: env:NAME'"]
        )
    given = []
    for header in headers:
        name, colon, value = header.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name or any(c in "\r\n\0" for c in header):
            raise Usage(f"'{name}' is no header; write 'Name: value'")
        if credentials.is_right(name) and not credentials.is_reference(value):
            raise Refused(
                f"the value of '{name}' would be kept in the journal",
                hints=[f"refer to it: --header '{name}: env:NAME'"],
            )
        given.append((name, value))
    return Server(url=url, headers=tuple(given))
