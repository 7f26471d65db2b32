"""Compare images of a resource, and follow what got another name when it was made anew. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from reprieve.effects.images import without_server_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"  # stands in an image for what is not kept or not the caller's: it says nothing, so it differs from nothing
# what servers alone set: when a thing was touched, and by whom
_SERVERS = frozenset(
    ("updated_at", "updatedat", "updated_by", "updatedby", "modified_at", "modifiedat", "modified_by", "modifiedby",
     "lastmodified", "last_modified", "accessed_at", "accessedat", "etag", "_etag", "_links")
)  # fmt: skip
# the server's or a person's own; which of the two it is shows when the call is made
_EITHER = frozenset(("updated", "modified", "version", "revision", "links", "views"))
_TIME = re.compile(r"\d{4}-\d\d-\d\d")


def settled(after: object, *, before: object = None, sent: object = None) -> object:
    """An image with a mask for what the server changes by itself: that says nothing about who changed the rest.

    A field that the call changed is never such a one, whatever its name; nor is one that the call left as it was. With
    no image of before it was made just now: what then counts up or is a time, and was not sent, is the server's.
    """
    if isinstance(after, list):
        olds, news = _paired(before, after), _paired(sent, after)
        return [_inside(item, old, new) for item, old, new in zip(after, olds, news, strict=True)]
    if not isinstance(after, dict):
        return after
    old, new = _fields(before), _fields(sent)
    found: dict[object, object] = {}
    for key, value in after.items():
        if _is_servers(key, value, old, new):
            found[key] = MASK
        else:
            found[key] = _inside(value, old.get(key), new.get(key))
    return found


def by_name(image: object) -> object:
    """An image with a mask for what servers alone set, where nothing more is known of the call."""
    return settled(image, before=image)


def blinded(image: object, by: object) -> object:
    """The same with a mask for what another image masks as the server's, or does not have and only servers set."""
    if isinstance(image, list):
        others = _paired(by, image)
        return list(map(blinded, image, others))
    if not isinstance(image, dict):
        return image
    other = _fields(by)
    return {key: MASK if _is_masked(key, other) else blinded(value, other.get(key)) for key, value in image.items()}


def same(wanted: object, found: object) -> bool:
    """Whether two images say the same, apart from what is masked and from when it was touched."""
    if wanted == MASK:
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = {*wanted, *(k for k in found if str(k).lower() not in _SERVERS)}
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
        elif value is not None and found.get(key) is not None and not _is_masked(key, after):
            left.append(where)
    return left


def differences(wanted: object, found: object, *, is_part: bool = False) -> str:
    """Names of the fields that differ."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return "its content"
    more = () if is_part else tuple(k for k in found if k not in wanted and str(k).lower() not in _SERVERS)
    return ", ".join(str(k) for k in (*wanted, *more) if not same(wanted.get(k), found.get(k)))[:200]


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


def _is_servers(key: object, after: object, old: Mapping[object, object], new: Mapping[object, object]) -> bool:
    name = str(key).lower()
    if name in _SERVERS:
        return not (key in new and _is_taken(new[key], after) and old.get(key) != after)
    if name not in _EITHER:
        return False
    is_number = isinstance(after, (int, float)) and not isinstance(after, bool)
    if key in new:
        if _is_taken(new[key], after):
            return False
        # other than it was sent: another number is a counter's; words and lists may be written the server's own way
        return is_number or (key in old and _is_taken(new[key], old[key]))
    if key in old:
        return old[key] != after
    return is_number or (isinstance(after, str) and bool(_TIME.match(after)))


def _is_masked(key: object, image: Mapping[object, object]) -> bool:
    """Whether a field is the server's, as an image tells; one that it does not have, by its name."""
    name = str(key).lower()
    return (name in _SERVERS and image.get(key, MASK) == MASK) or (name in _EITHER and image.get(key) == MASK)


def _is_taken(sent: object, found: object) -> bool:
    """Whether what was sent is what is there; a form sends all as text."""
    return sent == found or str(sent) == str(found)


def _inside(value: object, before: object, sent: object) -> object:
    # deeper inside nothing tells what the server makes: without an image of before all counts
    return settled(value, before=value if before is None else before, sent=sent)


def _paired(image: object, after: list[object]) -> list[object]:
    return image if isinstance(image, list) and len(image) == len(after) else [None] * len(after)


def _fields(image: object) -> dict[object, object]:
    return image if isinstance(image, dict) else {}


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
