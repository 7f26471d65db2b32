"""Who did it: the words for actors.

run:LABEL                     a command under `reprieve run`
AGENT:SESSION                 a coding agent's session (claude-code:8f2c…); a sub-agent's: AGENT:SESSION/SUB
person                        outside every window
shared:A,B                    windows of several actors were open at once
unknown                       cannot be told, and so counts as an agent's
"""

from __future__ import annotations

PERSON, UNKNOWN, REPRIEVE = "person", "unknown", "reprieve"
_SHARED = "shared:"
_SAID = {PERSON: "you", UNKNOWN: "someone unknown", REPRIEVE: "a rollback"}


# what may be part of an actor's name; the marks that have a meaning there are not among them
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST = 64


def plain(text: str) -> str:
    """A name from outside, made fit to be part of an actor or step. What has to be changed stays distinct."""
    if text and len(text) <= _LONGEST and _PLAIN.issuperset(text):
        return text
    from zlib import adler32, crc32

    data = text.encode("utf-8", "surrogatepass")
    kept = "".join(c if c in _PLAIN else "_" for c in text[: _LONGEST - 20])
    return f"{kept}.{crc32(data):08x}{adler32(data):08x}"


def of_session(agent: str, session: str | None, part: str | None = None) -> str:
    """The actor of an agent's session, or of a sub-agent in it."""
    who = f"{agent}:{plain(session) if session else 'no-session'}"
    return f"{who}/{plain(part)}" if part else who


def shared(actors: set[str]) -> str:
    """One actor, or the word for several at once."""
    if len(actors) == 1:
        return next(iter(actors))
    every = {name for actor in actors for name in parts(actor)}
    return _SHARED + ",".join(sorted(every))


def parts(actor: str) -> list[str]:
    """The actors that one word stands for."""
    return actor[len(_SHARED) :].split(",") if actor.startswith(_SHARED) else [actor]


def matches(actor: str, wanted: str) -> bool:
    """Whether the actor, or one of several (with commas), is the wanted one; `run` means every run."""
    names = [name for each in actor.split(",") for name in parts(each)]
    return any(name == wanted or name.startswith((wanted + ":", wanted + "/")) for name in names)


def said(actors: str, person: str = _SAID[PERSON]) -> str:
    """Actors (several with commas) as a person would say them; `person`: the word for the one at the keyboard."""
    names = [name for actor in actors.split(",") for name in parts(actor)]
    return " and ".join(person if name == PERSON else _SAID.get(name, name) for name in names)
