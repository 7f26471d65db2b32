"""Take a conversation back to where a cut says, in the way that its agent supports. Never writes to a live transcript.

prepare    reads and decides; raises before anything is touched
Rewind.do  writes the new session, or asks opencode's server
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence

from reprieve.agents import claude_transcript, codex_transcript, gemini_transcript
from reprieve.agents.conversation import need_support, opencode_request
from reprieve.agents.transcript import Fork, Message, Transcript, cut_before, find, find_said
from reprieve.errors import BadRef, Misconfigured
from reprieve.model.talk import CALL
from reprieve.model.value import Value
from reprieve.policy.redact import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.conversations import Cut

_LARGEST = 1 << 30
_HINT = "roll back the files alone: --files"


class Rewind(Value):
    """What is to be done for one session."""

    agent: str
    session: str
    command: tuple[str, ...]  # goes on from there
    old_command: tuple[str, ...] = ()  # goes on from where it was, if both exist afterwards
    path: str = ""  # file to make
    data: bytes = b""
    url: str = ""  # to POST `data` to; the answer's id completes the command
    kept: int = -1  # messages, -1: not known
    dropped: int = -1
    is_whole_turn: bool = False  # goes back further than the files: to before the prompt, not to the call
    is_whole_message: bool = False  # or to before the message: it has other calls too, and what they did stays

    def do(self) -> Rewind:
        """Carry it out; the same with the command complete. Raises Misconfigured."""
        if self.url:
            return self.replace(command=(*self.command, _post(self.url, self.data)))
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL
        try:
            fd = os.open(self.path, flags, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(self.data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Misconfigured(f"{self.path!r} can't be written: {error.strerror}", hints=[_HINT]) from error
        return self


def prepare(cut: Cut) -> Rewind:
    """What takes this session back. Raises Refused where its agent offers no way, Misconfigured, BadRef."""
    need_support(cut.agent)
    # Claude alone can be cut at a call.
    return _prepare(cut).replace(is_whole_turn=cut.talk.at == CALL and cut.agent != "claude-code")


def _prepare(cut: Cut) -> Rewind:
    if cut.agent == "opencode":
        return _opencode(cut)
    data = _read(cut)
    make, old = {
        "claude-code": (_claude, ("claude", "--resume")),
        "codex": (_codex, ("codex", "resume")),
        "gemini": (_gemini, ("gemini", "--resume")),
    }[cut.agent]
    fork = make(cut, data)
    return Rewind(
        cut.agent,
        cut.session,
        fork.command,
        old_command=(*old, cut.session),
        path=os.path.join(os.path.dirname(cut.transcript), fork.file_name),
        data=fork.data,
        kept=fork.kept,
        dropped=fork.dropped,
        is_whole_message=not cut.ended.isdisjoint(fork.gone),
    )


def _claude(cut: Cut, data: bytes) -> Fork:
    transcript = claude_transcript.parse(data)
    keep = cut_before(transcript, _claude_place(cut, transcript))
    return claude_transcript.fork(transcript, keep, title=f"before: {cut.label}", now=_now(), new_id=_new_id)


def _claude_place(cut: Cut, transcript: Transcript) -> int:
    """The first message that has to go. A call's own, or none: cut at the turn, the chat would not fit the files."""
    if cut.talk.at != CALL:
        return _turn_place(cut, transcript, claude_transcript.prompts(transcript))
    if not cut.is_inside and cut.talk.call:
        return find(transcript, call=cut.talk.call)
    where = cut.outer if cut.outer.startswith("call:") else f"turn:{cut.talk.turn}"
    reason = "inside of a sub-agent's work" if cut.is_inside else "in the middle of a turn whose calls have no names"
    raise BadRef(
        f"the conversation can't be cut {reason}",
        hints=[f"go back to where that began: reprieve rollback {where} --conversation", _HINT],
    )


def _codex(cut: Cut, data: bytes) -> Fork:
    transcript = codex_transcript.parse(data)
    prompts = [message for message in transcript.messages if message.is_prompt]
    keep = codex_transcript.turn_cut(transcript, _turn_place(cut, transcript, prompts))
    return codex_transcript.fork(transcript, keep, now=_now(), new_id=_new_id)


def _turn_place(cut: Cut, transcript: Transcript, prompts: Sequence[Message]) -> int:
    """The first message of the turn: by its name, or by the words of its prompt among all that there ever were."""
    turn = cut.talk.turn_id or (cut.prompt.turn_id if cut.prompt is not None else "")
    if turn and any(message.turn == turn for message in transcript.messages):
        return find(transcript, turn=turn)
    line = prompts[find_said([_title(each.text) for each in prompts], cut.said, cut.nth)].line
    for index, message in enumerate(transcript.messages):
        if message.line == line:
            return index
    raise BadRef("the conversation went back behind that prompt already", hints=[_HINT])


def _title(text: str) -> str:
    from reprieve.app.hook_words import title

    return title(shorten(text))


def _gemini(cut: Cut, data: bytes) -> Fork:
    chat = gemini_transcript.parse(data)
    message = cut.talk.message
    if not message:
        # Never by number: a chat may be older than the hook, and may have been rewound since.
        there = list(chat.prompts.values())
        message = list(chat.prompts)[find_said([_title(each) for each in there], cut.said, cut.nth)]
    title = f"before: {_title(chat.prompts.get(message, ''))}"
    return gemini_transcript.fork(chat, message, title=title, now=_now(), new_id=_new_id)


def _opencode(cut: Cut) -> Rewind:
    message = cut.prompt.message if cut.prompt is not None else cut.talk.message
    if not message or not cut.transcript:
        raise Misconfigured("no message of opencode's was recorded for that point", hints=[_HINT])
    request = opencode_request(cut.session, message)
    host = cut.transcript.partition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]")
    if not cut.transcript.startswith("http://") or host not in ("127.0.0.1", "localhost", "::1"):
        raise Misconfigured(f"opencode's server {cut.transcript!r} is not on this machine", hints=[_HINT])
    return Rewind(
        cut.agent,
        cut.session,
        ("opencode", "--session"),
        old_command=("opencode", "--session", cut.session),
        url=cut.transcript.rstrip("/") + request.path,
        data=json.dumps(request.body).encode(),
    )


def _post(url: str, data: bytes) -> str:
    from urllib.request import ProxyHandler, Request, build_opener

    asked = Request(url, data=data, headers={"content-type": "application/json"}, method="POST")
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=20) as answer:
            session = json.loads(answer.read(1 << 20)).get("id")
    except (OSError, ValueError, AttributeError) as error:
        raise Misconfigured(
            f"opencode's server did not fork the session: {error}",
            hints=["start opencode in this project and run the same command again with --conversation-only", _HINT],
        ) from error
    if not isinstance(session, str) or not session:
        raise Misconfigured("opencode's server did not say which session it made", hints=[_HINT])
    return session


def _read(cut: Cut) -> bytes:
    if not cut.transcript:
        raise Misconfigured(f"{cut.who} did not say where it keeps its conversation", hints=[_HINT])
    try:
        with open(cut.transcript, "rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise Misconfigured(
            f"the conversation {cut.transcript!r} can't be read: {error.strerror}", hints=[_HINT]
        ) from error


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def _new_id() -> str:
    return str(uuid.uuid4())
