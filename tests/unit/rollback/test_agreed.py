"""A plan is held to what was agreed to: what changed since stays, and half a repository is never moved."""

from __future__ import annotations

from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.plan import Action, Conflicted, Plan
from reprieve.rollback.agreed import only_agreed


def file(content: bytes) -> Entry:
    return Entry(FILE, 0o644, 0, 0, 1, content=content * 32)


def take(path: bytes, now: bytes) -> Action:
    return Action("delete", path, "delete", file(now), None)


def plan(*actions: Action, conflicts: tuple[Conflicted, ...] = ()) -> Plan:
    return Plan("id", "rollback", "t", "", actions, conflicts)


def test_what_is_as_it_was_agreed_is_done_and_nothing_else() -> None:
    agreed = plan(take(b"a", b"1"), take(b"b", b"1"))
    held = only_agreed(plan(take(b"a", b"1"), take(b"b", b"2"), take(b"new", b"1")), agreed)
    assert [action.path for action in held.actions] == [b"a"]
    assert [kept.path for kept in held.kept] == [b"new"]
    assert [gap.path for gap in held.not_undone] == [b"b"]


def test_a_folder_stays_around_what_stays_in_it() -> None:
    folder = Action("delete", b"d", "delete", Entry(DIR, 0o755, 0, 0, 0), None)
    held = only_agreed(plan(folder, take(b"d/mine", b"1")), plan(folder))
    assert not held.actions
    assert [gap.path for gap in held.not_undone] == [b"d"]


def test_a_repository_moves_as_a_whole_or_not_at_all() -> None:
    agreed = plan(take(b".git/refs/x", b"1"), take(b".git/index", b"1"))
    now = (take(b".git/refs/x", b"2"), take(b".git/index", b"1"), take(b".git/new", b"1"))
    assert only_agreed(plan(*now), agreed).actions == now
    stuck = only_agreed(plan(*now, conflicts=(Conflicted(b".git/HEAD", "both"),)), agreed)
    assert not stuck.actions and not stuck.conflicts
    other = only_agreed(plan(take(b"sub/.git/index", b"1")), agreed)
    assert not other.actions  # nobody agreed to move that one


def test_a_database_moves_as_a_whole_or_not_at_all() -> None:
    """The index of its log is not looked at: it goes with it."""
    parts = [take(path, b"1").replace(database=b"db") for path in (b"db", b"db-wal")]
    index = take(b"db-shm", b"1").replace(database=b"db", is_index=True)
    agreed = plan(*parts, index)
    assert only_agreed(plan(*parts, index.replace(before=file(b"2"))), agreed).actions[:2] == tuple(parts)
    held = only_agreed(plan(parts[0], parts[1].replace(before=file(b"2")), index), agreed)
    assert not held.actions
    assert {gap.path for gap in held.not_undone} == {b"db", b"db-wal"}
