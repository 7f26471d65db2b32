"""One number of a hard-link group never stands for two files."""

from __future__ import annotations

from hashlib import sha256

from reprieve.model.entry import FILE, Entry
from reprieve.model.plan import Action
from reprieve.rollback.groups import split_groups


def file(content: bytes, link: int = 7, **more: int) -> Entry:
    return Entry(FILE, **({"mode": 0o644, "uid": 0, "gid": 0} | more), size=1, content=content * 32, link=link)


def numbers(wanted: dict[bytes, Entry], staying: dict[bytes, Entry] | None = None) -> dict[bytes, int]:
    """The number that each path of a plan gets."""
    actions = [Action("write", path, "restore", file(b"x"), entry) for path, entry in wanted.items()]
    there = {**{path: file(b"x") for path in wanted}, **(staying or {})}

    def names_of(groups: set[int]) -> list[tuple[bytes, Entry]]:
        return [(path, entry) for path, entry in there.items() if entry.link in groups]

    made = [split_groups(actions, names_of, hash_of=lambda data: sha256(data).digest()) for _ in range(2)]
    assert made[0] == made[1]
    return {action.path: action.after.link for action in made[0] if action.after is not None}


def test_names_of_one_file_keep_their_number() -> None:
    assert numbers({b"a": file(b"1"), b"b": file(b"1", mtime_s=9)}) == {b"a": 7, b"b": 7}
    assert numbers({b"a": file(b"1"), b"b": file(b"2", 8)}) == {b"a": 7, b"b": 8}


def test_two_contents_are_two_files() -> None:
    found = numbers({b"a": file(b"1"), b"c": file(b"2"), b"f": file(b"2")})
    assert found[b"a"] == 0 and found[b"c"] == found[b"f"] not in (0, 7)
    assert numbers({b"a": file(b"1"), b"b": file(b"1"), b"c": file(b"2")}) == {b"a": 7, b"b": 7, b"c": 0}


def test_rights_tell_files_apart() -> None:
    assert numbers({b"a": file(b"1"), b"b": file(b"1", mode=0o600)}) == {b"a": 0, b"b": 0}


def test_the_number_stays_with_what_is_not_moved() -> None:
    assert numbers({b"a": file(b"1")}, {b"z": file(b"x")}) == {b"a": 0}
    assert numbers({b"a": file(b"1"), b"b": file(b"x")}, {b"z": file(b"x")}) == {b"a": 0, b"b": 7}
