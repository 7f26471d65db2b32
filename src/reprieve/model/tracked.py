"""Which names in its folder an entry of a tracked path's timeline knows: data of the entry, as text.

What is not among them is in the entry's tree as little as what was not there, and is not ours to delete.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_NAMES = '"names":['


def with_names(data: str, names: Collection[bytes]) -> str:
    """The data of an entry for which only these names were looked at; none: everything was."""
    if not names:
        return data
    from reprieve.model.quickjson import dumps

    listed = dumps(sorted(map(os.fsdecode, names)), is_compact=True)
    return f'{data[:-1] + "," if len(data) > 2 else "{"}"names":{listed}}}'


def names_in(data: str) -> frozenset[bytes] | None:
    """The names that were looked at; None if the entry does not say: of a whole folder, or of an older version."""
    if _NAMES not in data:
        return None
    from reprieve.model.quickjson import loads

    fields = loads(data)
    assert isinstance(fields, dict)
    return frozenset(map(os.fsencode, fields["names"]))
