"""Compare images of a resource, and follow what got another name when it was made anew. Pure."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from reprieve.effects.images import without_server_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"  # stands in an image for a secret that is not kept: it says nothing, so it differs from nothing
# fields that a server changes by itself: they say nothing about who changed the rest
VOLATILE = frozenset(
    ("updated", "updated_at", "updatedat", "modified", "modified_at", "lastmodified", "last_modified", "etag", "_etag",
     "version", "revision", "_links", "links", "accessed_at", "views")
)  # fmt: skip


def same(wanted: object, found: object) -> bool:
    """Whether two images say the same, apart from what servers change by themselves."""
    if wanted == MASK:
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = {k for k in (*wanted, *found) if str(k).lower() not in VOLATILE}
        return all(same(wanted.get(k), found.get(k)) for k in keys)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    return wanted == found


def contains(found: object, wanted: object) -> bool:
    """Whether an image has at least these fields with these values; null is as good as not there."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(contains(found[k], v) if k in found else _is_nothing(v) for k, v in wanted.items())
    return _is_nothing(wanted) if found is None else same(wanted, found)


def _is_nothing(wanted: object) -> bool:
    return all(map(_is_nothing, wanted.values())) if isinstance(wanted, dict) and wanted else wanted is None


def left_of(after: object, before: object, found: object, *, name: str = "") -> list[str]:
    """Names of what came with a change (`after`), was not there before it, and is found still."""
    if not (isinstance(after, dict) and isinstance(before, dict) and isinstance(found, dict)):
        return []
    left = []
    for key, value in after.items():
        where = f"{name}.{key}" if name else str(key)
        if key in before:
            left += left_of(value, before[key], found.get(key), name=where)
        elif value is not None and found.get(key) is not None and str(key).lower() not in VOLATILE:
            left.append(where)
    return left


def differences(wanted: object, found: object, *, is_part: bool = False) -> str:
    """Names of the fields that differ."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return "its content"
    more = () if is_part else tuple(k for k in found if k not in wanted)
    keys = [str(k) for k in (*wanted, *more) if str(k).lower() not in VOLATILE]
    return ", ".join(k for k in keys if not same(wanted.get(k), found.get(k)))[:200]


def as_part(wanted: object, found: object, *, other: object = None) -> object:
    """Of what was found, the fields that are wanted; inside those too where the `other` image goes in as well."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return found
    beside = other if isinstance(other, dict) else {}
    return {
        key: as_part(inner, found.get(key), other=beside[key]) if isinstance(beside.get(key), dict) else found.get(key)
        for key, inner in wanted.items()
    }


def own(value: object) -> object:
    """An image without what the server sets when it makes a thing."""
    return without_server_fields(value)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A URL or word with what was renamed in it, at its end or before a slash.

    The longest name counts: a part may have got another number than it had in the old whole. What was renamed more
    than once is followed to its newest name.
    """
    left = dict(names)
    while found := [old for old in left if text == old or text.startswith((old + "/", old + "?"))]:
        old = max(found, key=len)
        text = left.pop(old) + text[len(old) :]
    return text


def with_names(value: object, names: Mapping[str, str], *, url: str = "") -> object:
    """An image in which old names are new ones: URLs, `thing_id`, and for the thing at `url` itself its id."""
    if not names:
        return value
    if isinstance(value, dict):
        out = {key: _named(str(key), inner, names) for key, inner in value.items()}
        if url in names and "id" in out:
            out["id"] = _like(out["id"], renamed(url, names), url)
        return out
    if isinstance(value, list):
        return [with_names(item, names) for item in value]
    return renamed(value, names) if isinstance(value, str) else value


def _named(key: str, value: object, names: Mapping[str, str]) -> object:
    for old in names:
        collection = urlsplit(old).path.rstrip("/").split("/")[-2:-1]
        singular = collection[0].rstrip("s") if collection else ""
        if singular and key in (f"{singular}_id", f"{singular}Id"):
            value = _like(value, renamed(old, names), old)
    return with_names(value, names)


def _like(value: object, new: str, old: str) -> object:
    """The new id in the form of the old one, if it is the old one."""
    if not isinstance(value, (str, int)) or str(value) != _last(old):
        return value
    id = _last(new)
    return int(id) if isinstance(value, int) and id.isdecimal() else id


def _last(url: str) -> str:
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
