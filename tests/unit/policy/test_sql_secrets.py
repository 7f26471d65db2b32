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
        ("UPDATE u SET (name, password) = (%s, %s) WHERE id = 1", ["ada", "hunter2"], "password"),
        ("UPDATE u SET password = $$hunter2$$ WHERE id = 1", [], "password"),
        ("UPDATE u SET password = $x$hunter$$2$x$ WHERE id = 1", [], "password"),
        ("UPDATE u SET password = E'hunt\\'er2' WHERE id = 1", [], "password"),
        ("UPDATE u SET password = U&'hunter2' WHERE id = 1", [], "password"),
        ("INSERT INTO u (id, password) SELECT %s, %s", [1, "hunter2"], "password"),
        ("INSERT INTO u (id, password) VALUES (1, lower(%s))", ["hunter2"], "password"),
        ("INSERT INTO u AS x (id, name, password) VALUES (%s, %s, %s)", [1, "a", "hunter2"], "password"),
        ("INSERT INTO app.u (id, password) VALUES (coalesce(%s, 1), %s)", [1, "hunter2"], "password"),
        ("WITH n AS (SELECT 1) INSERT INTO u (id, password) VALUES (%s, %s)", [1, "hunter2"], "password"),
        ("INSERT INTO u (id, password) SELECT * FROM (VALUES (%s, %s)) v", ["1", "hunter2"], "password"),
        ("UPDATE u SET password = CASE WHEN id = %s AND x = %s THEN %s END", [1, "a", "hunter2"], "password"),
        ("UPDATE u SET is_right = (password = %s)", ["hunter2"], "password"),
        ("UPDATE u SET password = v.p FROM (VALUES (%s, %s)) AS v (id, p)", [1, "hunter2"], "password"),
        ("UPDATE u SET password = (SELECT %s WHERE true)", ["hunter2"], "password"),
        ("UPDATE u SET tags = %s WHERE id = 1", [["x", "password=hunter2-and-more"]], "tags"),
        ("UPDATE u SET api_keys = %s WHERE id = 1", [["hunter2"]], "api_keys"),
        ("UPDATE u SET password = ANY (%s)", [["hunter2"]], "password"),
        ("UPDATE u SET password = (ARRAY[%s, %s])[1]", ["hunter2", "x"], "password"),
        ("UPDATE u SET cfg = jsonb_set(cfg, '{password}', %s) WHERE id = 1", ['"hunter2"'], "{password}"),
        ("UPDATE u SET cfg = json_set(cfg, '$.db.password', ?) WHERE id = 1", ["hunter2"], "$.db.password"),
        ("UPDATE u SET cfg = cfg || jsonb_build_object('password', %s)", ["hunter2"], "password"),
        ("UPDATE u SET name = 'n' WHERE cfg ->> 'password' = %s", ["hunter2"], "password"),
        ("UPDATE u SET name = %s WHERE cfg ? 'a' AND password = %s", ["ada", "hunter2"], "password"),
        ("UPDATE u SET name = v[1:2], password = %s WHERE id = %s", ["hunter2", 1], "password"),
        ("DELETE FROM u WHERE %s IS DISTINCT FROM password", ["hunter2"], "password"),
        ("UPDATE u SET password = 'hunter2", [], "password"),
        ("INSERT INTO u (password) VALUES (%b)", ["hunter2"], "password"),
        ("INSERT INTO u (password) VALUES (%t)", ["hunter2"], "password"),
        ("UPDATE u SET password = %b", ["hunter2"], "password"),
        ("UPDATE u SET name = ?2, password = ?1", ["hunter2", "ada"], "password"),
        ("UPDATE u SET note = 'a %s', password = %s", ["n", "hunter2"], "password"),
        ("INSERT INTO settings (name, value) VALUES ('smtp_password', %s)", ["hunter2"], "value"),
        ("UPDATE settings SET value = %s WHERE name = %s", ["hunter2", "smtp_password"], "value"),
        ("MERGE INTO u USING s ON true WHEN NOT MATCHED THEN INSERT (password) VALUES (%s)", ["hunter2"], "password"),
        ("CREATE USER MAPPING FOR u SERVER s OPTIONS (user 'x', password 'hunter2')", [], "password"),
        ("CREATE TABLE u (id int, password text DEFAULT 'hunter2')", [], "password"),
        ("CREATE FUNCTION f() RETURNS void AS $$ UPDATE u SET password = 'hunter2' $$ LANGUAGE sql", [], "password"),
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
        ("INSERT INTO api_tokens (id, owner) VALUES (?, 'ada') ON CONFLICT (id) DO UPDATE SET owner = ?", ["7", "ada"]),
        ("INSERT INTO app.api_tokens (id) SELECT 'x'", []),
        ("UPDATE api_tokens SET owner = %s WHERE api_tokens.id = %s", ["ada", "7"]),
        ("UPDATE u SET title = 'password', kind = ? WHERE kind IN ('token', 'cookie')", ["x"]),
        ("INSERT INTO u (name, password, city) VALUES (%s, %s, lower(%s))", ["a", {"credential": "env:OLD"}, "Oslo"]),
        ("UPDATE u SET password = ? WHERE (owner = 'ada' AND id = 7)", [{"credential": "env:OLD"}]),
        ("CREATE TABLE u (id int, password text, state text DEFAULT 'new', CHECK (password <> ''))", []),
        ("CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN NEW.password = OLD.password; END $$ LANGUAGE plpgsql", []),
        ("UPDATE settings SET value = %s WHERE name = 'colour'", ["red"]),
        ("UPDATE u SET note = %s WHERE rate > 5 %% 2", ["n"]),
        ("", []),
    ],
)
def test_what_is_none_is_kept(sql: str, values: Sequence[object]) -> None:
    assert secret_column(sql, values) == ""
