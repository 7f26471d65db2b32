"""Put an entry that was promised on the timeline (`store.promises`): that before a call, when nothing had changed.

So its tree is that of the entry before it, whatever happened to the files since. The caller has the workspace's lock.
"""

from __future__ import annotations

import os

from reprieve.model.quickjson import dumps, loads
from reprieve.model.timeline import CHECKPOINT, Draft
from reprieve.model.window import Window
from reprieve.store import promises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.capture import Capture

_TEXTS = ("id", "label", "note", "data")


def text_of(draft: Draft, window: Window) -> str:
    """What is promised, for `store.promises.write`."""
    fields: dict[str, object] = {name: getattr(draft, name) for name in _TEXTS}
    return dumps({**fields, "created_at": draft.created_at, "window": window.given()}, is_compact=True)


def keep(capture: Capture) -> None:
    """Append what is promised, if anything is. Killed in between, the next one does it, once."""
    home, workspace = capture.home, capture.workspace_id
    path = promises.path_of(home, workspace)
    try:
        text = promises.read(home, workspace)
        if not text:
            return
        draft, window = _read(text, path)
        if capture.timeline.get(draft.id) is None:
            capture.record_unchanged(draft, opens=window)
        promises.clear(home, workspace)
    except OSError as error:
        from reprieve.store.faults import failed

        raise failed(error, path, f"keep the promise in {path!r}") from error


def window_of(home: str, workspace: str) -> Window | None:
    """The window that is promised and not on the timeline yet. No lock is needed to ask."""
    try:
        text = promises.read(home, workspace)
    except OSError:
        return None  # `keep` says what is wrong with it
    return _read(text, promises.path_of(home, workspace))[1] if text else None


def is_waiting(home: str, workspace: str) -> bool:
    """Whether there is one; no lock is needed to ask."""
    try:
        return bool(promises.read(home, workspace))
    except OSError:
        return True  # `keep` says what is wrong with it


def _read(text: str, path: str) -> tuple[Draft, Window]:
    try:
        fields = loads(text)
        assert isinstance(fields, dict)
        window = Window(**fields["window"])
        id, label, note, data = (str(fields[name]) for name in _TEXTS)
        draft = Draft(CHECKPOINT, int(fields["created_at"]), "", label, note, data=data, id=id)
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError) as error:
        from reprieve.errors import StoreCorrupted

        raise StoreCorrupted(
            f"the promise in {path!r} is not what was written: {error}",
            hints=[f"move it away and run the command again: mv {path} {os.path.dirname(path)}.damaged"],
        ) from error
    return draft, window
