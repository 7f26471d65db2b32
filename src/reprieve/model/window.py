"""Windows: the times in which an actor was at work. What changes in one is the actor's; in none, a person's.

A window is opened by a checkpoint and closed by another. Each checkpoint's data lists the windows that are open after
it, so the newest one is all that has to be read, and the chain of the timeline covers who is said to have done what:

    checkpoint  {"opens":"w1","open":[w1]}      what changed before it, outside every window, is a person's
    checkpoint  {"open":[w1]}                   someone's in between: what changed since is w1's
    checkpoint  {"before":ID,"closes":"w1","open":[]}          what changed since is w1's
"""

from __future__ import annotations

from reprieve.model.actor import PERSON, UNKNOWN, shared
from reprieve.model.value import Value

# how the data of a checkpoint at the end of a step, or inside of it, begins: the id of the one before the step
SEAL = '{"before":"'
SAFETY = '{"safety":"'  # and of a checkpoint that was taken before a move
_OPEN, _LEFT, _CLOSES, _OPENS = '"open":[', '"left":[', '"closes":"', '"opens":"'


class Window(Value):
    """An actor at work."""

    id: str
    actor: str
    step: str  # name of the step that it makes: call:ID, a run's label
    opened: str = ""  # id of the checkpoint that opened it
    turn: int = 0  # of the session, counted from 1; 0: none
    pid: int = 0  # the process that will close it, 0 if that is not known
    born: int = 0  # when that process started, in the kernel's own count: a pid may be given again
    parent: str = ""  # id of the window that this one was opened inside of: a run in a run, a sub-agent's call
    key: str = ""  # pairs the end of a call with its beginning, for agents that give calls no id
    count: int = 1  # calls that look the same and go on at once; the last one closes it
    is_container: bool = False  # a call that has sub-agents work: their calls are inside of it
    is_background: bool = False  # goes on after the call has answered: only the end of all such work closes it
    writes: tuple[str, ...] = ()  # the only paths that it changes, if it says so: tells it from others at the same time


class Standing(Value):
    """What is going on after a checkpoint."""

    open: tuple[Window, ...] = ()
    left: tuple[tuple[int, int], ...] = ()  # (pid, born) of processes that outlived the window that started them
    is_used: bool = False  # there was a window at some time

    def lineages(self) -> tuple[tuple[str, ...], ...]:
        """Ids of each innermost window and those around it: what changes is the innermost one's."""
        by_id = {window.id: window for window in self.open}
        around = {window.parent for window in self.open}
        found = []
        for window in self.open:
            if window.id not in around:
                ids = [window.id]
                while (outer := by_id.get(by_id[ids[-1]].parent)) is not None and outer.id not in ids:
                    ids.append(outer.id)
                found.append(tuple(ids))
        return tuple(found)

    def author(self) -> str:
        """Who makes what changes from here to the next entry."""
        if self.open:
            innermost = {ids[0] for ids in self.lineages()}
            return shared({window.actor for window in self.open if window.id in innermost})
        if self.left or not self.is_used:
            return UNKNOWN
        return PERSON


DAMAGED = Standing(left=((0, 0),), is_used=True)  # a row that cannot be read: nobody can tell who was at work


def standing(data: str) -> Standing:
    """What the data of a checkpoint says."""
    at = data.find(_OPEN)
    if at < 0:
        return Standing()
    if data.startswith(_OPEN + "]", at) and _LEFT not in data:
        return Standing(is_used=True)
    from reprieve.model.quickjson import loads  # needed only while something is open

    try:
        fields = loads(data)
        assert isinstance(fields, dict)
        windows = tuple(_window(window) for window in fields["open"])
        left = tuple((int(pid), int(born)) for pid, born in fields.get("left", ()))
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError):
        return DAMAGED
    return Standing(windows, left, True)


def _window(fields: dict[str, object]) -> Window:
    if "writes" in fields:
        fields["writes"] = tuple(map(str, fields["writes"]))  # type: ignore[call-overload]
    return Window(**fields)  # type: ignore[arg-type]


def with_standing(data: str, now: Standing, *, opens: str = "", closes: str = "") -> str:
    """The data of a checkpoint after which this is going on."""
    if not now.is_used:
        return data
    parts = [data[1:-1]] if len(data) > 2 else []
    if opens:
        parts.append(f'{_OPENS}{opens}"')
    if closes:
        parts.append(f'{_CLOSES}{closes}"')
    if now.open or now.left:
        from reprieve.model.quickjson import dumps

        parts.append(f'"open":{dumps([window.given() for window in now.open], is_compact=True)}')
        if now.left:
            parts.append(f'"left":{dumps(now.left, is_compact=True)}')
    else:
        parts.append(_OPEN + "]")
    return "{" + ",".join(parts) + "}"


def sealed(before: str, more: str = "") -> str:
    """The data of a checkpoint that nobody asked for, at the end of a step or inside of it.

    `before`: id of the checkpoint before the step. `more`: other fields, as JSON text.
    """
    return f'{SEAL}{before}"{"," + more if more else ""}}}'


def opens(data: str) -> str:
    """Id of the window that a checkpoint opened, "" if none."""
    return field(data, "opens")


def closes(data: str) -> str:
    """Id of the window that a checkpoint closed, "" if none."""
    return field(data, "closes")


def field(data: str, name: str) -> str:
    """A field of an entry's data that holds an id; read without json, which would cost 9 ms."""
    return data.partition(f'"{name}":"')[2].partition('"')[0]
