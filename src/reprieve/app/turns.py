"""A conversation for home-made harnesses: messages with turns, and undo and redo that move files and messages together.

    thread          ●──●──●──●  head        a state after every message; each knows its turn and where that began
                    │     └──○──○           undone turns are branches: nothing deletes them
    timeline        ──[ turn 1 ]─[ turn 2 ]──   a turn is a window; what changes in it is the session's

Undo and redo are journalled on the thread: an intent, then the files (one atomic move of the workspace), then the head.
Whoever opens the conversation after a crash sees on the timeline whether the files moved, and lets the messages follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from reprieve.app.guard import Block, Step, open_step
from reprieve.app.hook_words import note_for, title
from reprieve.app.plan_story import is_rollback_beyond
from reprieve.app.steps import Step as Undoable
from reprieve.app.threads import open_threads
from reprieve.errors import BadRef, Conflict, Refused, Usage
from reprieve.model import talk as moments
from reprieve.model.actor import of_session, plain
from reprieve.model.plan import Report
from reprieve.model.thread import MOVE, STATE
from reprieve.model.timeline import MOVES, REDO, UNDO
from reprieve.model.value import Value
from reprieve.model.window import closes, field
from reprieve.threads.ids import new_id
from reprieve.threads.repair import Message, repair
from reprieve.threads.threads import State
from reprieve.threads.values import Types, loads

if TYPE_CHECKING:
    from reprieve.app.public import Workspace as Public
    from reprieve.app.workspace import Workspace


class Turned(Value):
    """What an undo or redo did: the turn, its messages, and the report about the files."""

    turn: int
    prompt: str
    messages: tuple[Message, ...]
    report: Report


class Branch(Value):
    """Where a conversation ends, or ended before it was taken back."""

    id: str
    turn: int
    prompt: str
    length: int  # messages
    is_current: bool


class Conversation:
    """The messages of one agent, kept beside the workspace's timeline; a context manager.

    Messages are JSON objects, whatever the provider's shape. What is kept survives the process; another one opens it
    under the same name and goes on. For one writer at a time: a second one gets a Conflict, and nothing is lost.
    """

    def __init__(self, ws: Public, name: str = "main", *, agent: str = "python") -> None:
        self._ws = cast("Workspace", getattr(ws, "_inner", ws))
        self.name, self._thread = name, f"conversation:{name}"
        self._who = of_session(plain(agent), name)
        self._threads, _ = open_threads(self._ws, Types())
        self._turn: Turn | None = None
        self._is_moving = False  # an undo or redo was begun, and its end is not recorded
        with self._ws.store.lock(self._ws.id):
            if not self._threads.store.heads(self._thread).get(""):
                self._put([], {"turn": 0, "base": ""}, parent="")
            self._settle()
            self._head = self._threads.store.heads(self._thread)[""]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store; the workspace stays open."""
        self._threads.store.close()

    # -- messages

    @property
    def messages(self) -> list[Message]:
        """What to send to the model: calls without a result, as a crash leaves them, have one that says so."""
        return repair(self._messages(self._head))

    @property
    def turn_number(self) -> int:
        """Of the turn that the conversation is in or has ended with; 0: none yet."""
        return int(self._meta(self._head)["turn"])

    def turn(self, message: str | Mapping[str, Any]) -> Turn:
        """Begin a turn with what the person said, for `with` and `async with`; what changes in it is the agent's.

        A checkpoint first; without one nothing is begun. What could be redone is no longer, but stays as a branch.
        """
        said = {"role": "user", "content": message} if isinstance(message, str) else message
        return Turn(self, _checked(said))

    def append(self, *messages: Mapping[str, Any]) -> None:
        """Add messages; durable when this returns."""
        self._write([*self._messages(self._head), *map(_checked, messages)])

    def replace(self, *messages: Mapping[str, Any]) -> None:
        """Go on with other messages, such as a summary of the old ones; turns can still be undone one by one."""
        self._write([_checked(message) for message in messages])

    # -- going back and forth

    def undo(self, *, effects: bool = False, on_conflict: str = "abort") -> Turned:
        """Take the last turn back: its messages, and what changed in the folder while it lasted. Repeats.

        Raises Conflict with nothing moved where somebody changed the same since. `effects`: also undo what was done
        outside of the folder; without it the report names those. Raises Usage if there is no turn.
        """
        with self._alone():
            self._settle()
            self._must_be_ours()
            meta = self._meta(self._head)
            if not meta["base"]:
                raise Usage(f"there is no turn to undo in the conversation '{self.name}'")
            self._state(meta["base"])
            opened = self._ws.timeline.get(meta["checkpoint"])
            if opened is None:
                raise BadRef(f"the checkpoint of turn {meta['turn']} is no longer there; it can't be undone")
            if any(window.id == meta["window"] for window in self._ws.capture.author()[2].open):
                raise Refused(f"turn {meta['turn']} of '{self.name}' is still under way; nothing was touched")
            sealed = next((e for e in self._ws.timeline.after(opened.seq) if closes(e.data) == meta["window"]), None)
            step = Undoable(
                meta["window"], f"turn {meta['turn']} of {self.name}", opened.seq, opened, sealed,
                frozenset((meta["window"],)),
            )  # fmt: skip
            before = self._head

            def move() -> Report | None:
                how = "undo" if effects else "list"
                return self._ws.undo(step, effects=how, on_conflict=on_conflict)[1]

            report = self._move("undo", to=meta["base"], of=opened.id, files=move)
            return Turned(meta["turn"], meta["prompt"], tuple(self._beyond(meta["base"], before)), report)

    def redo(self) -> Turned:
        """Bring the turn back that was undone last: messages and files. Repeats, also after a restart.

        Raises Conflict with nothing moved if the files moved on since, and Usage if there is nothing to redo.
        """
        with self._alone():
            self._settle()
            self._must_be_ours()
            stack = self._undone()
            if not stack:
                raise Usage(f"there is nothing to redo in the conversation '{self.name}'")
            to, operation = stack[-1]
            before = self._head

            meta = self._meta(to)

            def move() -> Report | None:
                # "": the turn had changed no file. A person may also have brought the files back by hand
                is_there = not operation or self._is_redone(operation, meta["checkpoint"])
                return Report("") if is_there else self._ws.redo(of=operation)[1]

            report = self._move("redo", to=to, of=operation, files=move)
            return Turned(meta["turn"], meta["prompt"], tuple(self._beyond(before, to)), report)

    @property
    def redo_depth(self) -> int:
        """How many turns can be brought back."""
        return len(self._undone())

    def branches(self) -> list[Branch]:
        """Where the conversation ends and where it ended before, newest first. Undo deletes none of them."""
        states = self._threads.store.states(self._thread, "")
        inner = {entry.parent for entry in states}
        found = []
        for entry in states:
            if entry.id not in inner or entry.id == self._head:
                meta = self._meta(entry.id)
                length = len(self._messages(entry.id))
                found.append(Branch(entry.id, meta["turn"], meta["prompt"], length, entry.id == self._head))
        return found

    def messages_of(self, branch: str) -> list[Message]:
        """The messages of a branch."""
        return repair(self._messages(branch))

    # -- inside

    def _alone(self) -> Any:
        """Nobody else moves files or this conversation meanwhile; refused in the middle of a turn."""
        if self._turn is not None:
            raise Usage("a turn is under way", hints=["undo and redo after its block has ended"])
        return self._ws.store.lock(self._ws.id)

    def _begin(self, turn: Turn, step: Step, message: Message) -> None:
        meta = {
            "turn": step.window.turn,
            "base": self._head,
            "checkpoint": step.before.entry.id,
            "window": step.window.id,
            "prompt": title(_text(message)),
            "starts": True,
        }
        self._write([*self._messages(self._head), message], meta)
        self._turn = turn

    def _write(self, messages: list[Message], meta: Mapping[str, Any] | None = None) -> None:
        """A state after the head, if that is still where we think it is."""
        if self._is_moving:  # an undo that was broken off; behind another entry nobody would finish it
            with self._ws.store.lock(self._ws.id):
                self._settle()
        with self._threads.store.transaction():
            self._must_be_ours()
            told = meta or {key: value for key, value in self._meta(self._head).items() if key != "starts"}
            self._head = self._put(messages, told, parent=self._head)

    def _must_be_ours(self) -> None:
        head = self._threads.store.heads(self._thread).get("", "")
        if head != self._head:
            raise Conflict(
                f"somebody else went on with the conversation '{self.name}'; nothing was added",
                hints=["open it again and look"],
                data={"head": head},
            )

    def _put(self, messages: list[Message], meta: Mapping[str, Any], *, parent: str) -> str:
        id = new_id(parent, clock=self._ws.clock)
        told = {"source": "conversation", "checkpoint": "", "window": "", "prompt": "", **meta}
        self._threads.put(self._thread, id, {"messages": messages}, parent=parent, meta=told)
        return id

    def _meta(self, id: str) -> dict[str, Any]:
        return dict(self._state(id).meta)

    def _messages(self, id: str) -> list[Message]:
        found: list[Message] = self._threads.value(self._thread, self._state(id).values["messages"])
        return found

    def _state(self, id: str) -> State:
        state = self._threads.get(self._thread, id)
        if state is None:
            raise BadRef(
                f"the conversation '{self.name}' has no state '{id}', or it was pruned",
                hints=[f"see what there is: reprieve thread show {self._thread}"],
            )
        return state

    def _beyond(self, base: str, end: str) -> list[Message]:
        """The messages that one state has and the other has not."""
        shorter, longer = self._messages(base), self._messages(end)
        same = 0
        while same < len(shorter) and same < len(longer) and shorter[same] == longer[same]:
            same += 1
        return longer[same:]

    # -- files and messages together

    def _is_redone(self, operation: str, checkpoint: str) -> bool:
        """Whether somebody brought the files of a turn back by hand. Raises Conflict if they went away again since."""
        moves = list(self._ws.log(kinds=MOVES))
        redone = {field(entry.data, "of"): entry for entry in moves if entry.kind == REDO}
        if operation not in redone:
            return False
        opened = self._ws.timeline.get(checkpoint)
        for entry in moves:
            if entry.seq < redone[operation].seq or entry.id in redone or opened is None:
                continue
            target = self._ws.timeline.get(field(entry.data, "target"))
            is_undo = entry.kind == UNDO and target is not None and target.id == checkpoint
            if is_undo or is_rollback_beyond(entry, target, opened):
                raise Conflict(
                    "the files of this turn were brought back and taken back again by hand; nothing was moved",
                    hints=["bring them back first: reprieve redo"],
                )
        return True

    def _move(self, how: str, *, to: str, of: str, files: Any) -> Report:
        tip = self._ws.timeline.tip()
        intent = {"how": how, "to": to, "of": of, "since": tip.seq if tip is not None else 0}
        self._is_moving = True
        try:
            self._say(self._head, {**intent, "is_intent": True})
            report: Report | None = files()
            assert report is not None
            self._say(to, {**intent, "operation": report.operation})
        except BaseException:
            self._settle()  # the timeline says whether the files moved before that
            raise
        self._is_moving = False
        self._head = to
        return report

    def _say(self, head: str, body: Mapping[str, Any]) -> None:
        """Append to the thread where the conversation is now, and why."""
        with self._threads.store.transaction():
            record = self._threads.store.thread(self._thread)
            assert record is not None
            before = self._threads.store.heads(self._thread).get("", "")
            whole = {"heads": {"": head}, "void": [], "target": head, "before": before, **body}
            self._threads.append(record, kind=MOVE, ns="", id=head, parent=before, body=whole)
            self._threads.store.set_heads(self._thread, {"": head})

    def _settle(self) -> None:
        """Finish what a crash interrupted: where the files have moved, the messages follow."""
        record = self._threads.store.thread(self._thread)
        entries = self._threads.store.entries(self._thread, kinds=(MOVE,), after=record.seq - 1) if record else []
        told = loads(entries[-1].body) if entries else {}
        if not told.get("is_intent"):
            self._is_moving = False
            return
        self._ws.recover()
        kind, name = (UNDO, "target") if told["how"] == "undo" else (REDO, "of")
        for entry in self._ws.timeline.after(told["since"]):
            if entry.kind == kind and told["of"] and field(entry.data, name) == told["of"]:
                done = {key: told[key] for key in ("how", "to", "of", "since")}
                self._say(told["to"], {**done, "operation": entry.id})
                self._head, self._is_moving = told["to"], False
                return
        self._say(entries[-1].id, {"how": "nothing"})
        self._is_moving = False

    def _undone(self) -> list[tuple[str, str]]:
        """(state to go back to, operation that moved the files) of every turn that can be redone, oldest first."""
        stack: list[tuple[str, str]] = []
        for entry in self._threads.store.entries(self._thread, old=False):
            body = loads(entry.body)
            if entry.kind == STATE and body["meta"].get("starts"):
                stack.clear()
            elif entry.kind == MOVE and not body.get("is_intent"):
                if body.get("how") == "undo":
                    stack.append((body["before"], body["operation"]))
                elif body.get("how") == "redo" and stack:
                    stack.pop()
        return stack


class Turn(Block):
    """One turn of a conversation. Made by `Conversation.turn`."""

    def __init__(self, conversation: Conversation, message: Message) -> None:
        super().__init__(conversation._ws)
        self._conversation, self._message = conversation, message

    if TYPE_CHECKING:

        def __enter__(self) -> Step: ...
        async def __aenter__(self) -> Step: ...

    def _open(self) -> Step:
        conversation = self._conversation
        if conversation._turn is not None:
            raise Usage("a turn is under way", hints=["one turn after the other"])
        with self._ws.store.lock(self._ws.id):
            conversation._settle()
            conversation._must_be_ours()
            prompt = _text(self._message)
            step = open_step(
                self._ws,
                conversation._who,
                "",
                label=title(prompt) or "a turn",
                note=note_for(prompt),
                at=moments.PROMPT,
            )
            try:
                conversation._begin(self, step, self._message)
            except BaseException:
                self._seal(step, is_failed=True)
                raise
        return step

    def _seal(self, step: Step, *, is_failed: bool) -> None:
        self._conversation._turn = None
        super()._seal(step, is_failed=is_failed)


def _checked(message: Mapping[str, Any]) -> Message:
    """A copy that is JSON and nothing else."""
    if not isinstance(message, Mapping):
        raise Usage(f"a message is a JSON object, not {type(message).__name__}")
    try:
        copy: Message = json.loads(json.dumps(message, allow_nan=False))
    except (TypeError, ValueError) as e:
        raise Usage(f"the message is not JSON: {e}", hints=["hand over what the provider's library dumps it as"]) from e
    return copy


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)
