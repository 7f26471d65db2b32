"""A secret among the values of a statement is found by the column that it is for, or by its own looks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reprieve.policy.sql_secrets import secret_column

TOKEN = "ghp_" + "a1B2c3D4" * 5


@pytest.mark.parametrize(
    ("sql", "values", "column"),
    [
        ("UPDATE u SET password=? WHERE id=?", ["hunter2", 1], "password"),
        ("UPDATE u SET name = ?, \"api_key\" = ? WHERE id = 1", ["n", "k"], "api_key"),
        ("UPDATE u SET password = crypt(%s, 'bf') WHERE id = %s", ["hunter2", 1], "password"),
        ("UPDATE u SET note = %s::text, secret = %s::text", ["n", "s"], "secret"),
        ("UPDATE u SET name='n' WHERE password = 'hunter2'", [], "password"),
        ("INSERT INTO u (id, name, token) VALUES (?, ?, ?), (2, 'b', ?)", [1, "a", "", "t"], "token"),
        ("INSERT INTO u VALUES (?, ?)", [1, TOKEN], "?"),
        ("ALTER ROLE ada PASSWORD 'hunter2'", [], "PASSWORD"),
        ("UPDATE u SET password_hash = ? WHERE id = 1", [b"$2b$12$abc"], "password_hash"),
    ],
)  # fmt: skip
def test_a_secret_is_named_by_its_column(sql: str, values: Sequence[object], column: str) -> None:
    assert secret_column(sql, values) == column


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("UPDATE u SET password = ? WHERE id = ?", [{"credential": "env:OLD"}, "7"]),
        ("UPDATE u SET password = NULL, name = 'ada' WHERE id = 1", []),
        ("UPDATE u SET password_changed_at = '2026-11-17 10:00', name = ? WHERE id = ?", ["ada", "7"]),
        ("UPDATE u SET password_attempts = ?, is_token_used = ?", [3, True]),
        ("DELETE FROM api_tokens WHERE id = ? AND owner = 'ada'", ["7"]),
        ("INSERT INTO u (id, password, name) VALUES (1, NULL, 'it''s'), (?, ?, ?)", [2, None, "b"]),
        ("DROP TABLE secrets", []),
    ],
)
def test_what_is_none_is_kept(sql: str, values: Sequence[object]) -> None:
    assert secret_column(sql, values) == ""
