"""What takes back a change that a server merges into what is there, as JSON merge patch does (RFC 7396). Pure.

The old object sent again removes nothing from a merge: a key that the call added goes only if null is sent for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.effect import Json


def is_merge(type: str) -> bool:
    """Whether a content type says so: application/merge-patch+json, and Kubernetes' strategic one."""
    return "merge-patch+json" in type.lower()


def back(sent: Json, was: Json) -> Json:
    """The patch that undoes a patch: of what it touched what was there, null for what was not. All else stays."""
    return {key: _back(value, was.get(key)) for key, value in sent.items()}


def _back(sent: object, was: object) -> object:
    return back(sent, was) if isinstance(sent, dict) and isinstance(was, dict) else was


def was_merged(sent: object, was: object, now: object) -> bool:
    """Whether the server is seen to merge: inside an object that was sent stands a key that was not, as before."""
    if not (isinstance(sent, dict) and isinstance(was, dict) and isinstance(now, dict)):
        return False
    for key, inner in sent.items():
        old, new = was.get(key), now.get(key)
        if not (isinstance(inner, dict) and isinstance(old, dict) and isinstance(new, dict)):
            continue
        if any(each in new for each in old if each not in inner) or was_merged(inner, old, new):
            return True
    return False
