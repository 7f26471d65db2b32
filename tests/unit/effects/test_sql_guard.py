"""What must be gone once a guarded statement has run."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from reprieve.effects.sql_guard import left_over


@pytest.mark.parametrize(
    ("sql", "values", "query"),
    [
        ("DELETE FROM t WHERE id = ? OR a IS NOT NULL", (1,), ("t WHERE id = ? OR a IS NOT NULL", (1,))),
        ("delete from only s.t x where x.id in (%s, %s);", (1, 2), ("only s.t x WHERE x.id in (%s, %s)", (1, 2))),
        ("UPDATE t SET a = ? WHERE id = ? AND a = ?", (9, 1, 2), ("t WHERE id = ? AND a = ?", (1, 2))),
        ("UPDATE OR IGNORE t SET a = 'where x' WHERE a = 'b'", (), ("t WHERE a = 'b'", ())),
        ("UPDATE t AS x SET a = NULL, b = f(?, 1) WHERE x.a = ?", (7, 3), ("t AS x WHERE x.a = ?", (3,))),
    ],
)
def test_what_it_should_have_changed_is_asked_for(
    sql: str, values: tuple[object, ...], query: tuple[str, tuple[object, ...]]
) -> None:
    found = left_over(sql, values)
    assert found is not None and (" ".join(found[0].split()), found[1]) == (
        f"SELECT count(*) FROM {query[0]}",
        query[1],
    )


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("UPDATE t SET balance = balance - 10 WHERE id = 1", ()),  # finds its row before and after
        ("UPDATE t SET a = ? WHERE id = ?", (9, 1)),  # no guard
        ("UPDATE t SET a = ? WHERE a = ?", (1, Decimal("1.0"))),  # the same
        ("UPDATE t SET a = ? WHERE a = ?", ("Ada ", "ada")),  # the same to some columns
        ("UPDATE t SET a = ? WHERE a = ?", ("2026-01-02", datetime.date(2026, 1, 1))),
        ("UPDATE t SET a = 1", ()),
        ("UPDATE t SET a = ? WHERE a = ? OR b = 1", (9, 2)),
        ("UPDATE t SET a = ? FROM s WHERE t.a = ?", (9, 2)),
        ("UPDATE t SET a = ? WHERE a = ? RETURNING a", (9, 2)),
        ("DELETE FROM t WHERE id = (SELECT max(id) FROM t)", ()),
        ("DELETE FROM t USING s WHERE s.id = t.id", ()),
        ("DELETE FROM t /* where */ WHERE id = 1", ()),
        ("INSERT INTO t VALUES (1)", ()),
    ],
)
def test_of_others_nothing_can_be_told(sql: str, values: tuple[object, ...]) -> None:
    assert left_over(sql, values) is None
