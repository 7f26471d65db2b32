"""SQL is read for what it does to rows; what can't be read is opaque."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, READ, RESTORABLE, REVERSIBLE, rank
from reprieve.policy.sql import NONE, ROWS, WHOLE, read_sql

READS = """
select 1
SELECT * FROM users WHERE name = 'drop table users; delete from users'
select "drop" from "delete"
select count(*), lower(name) from users group by 2 having count(*) > 1
select * from a join b on (a.id = b.id) where a.x in (select y from c)
select * from a for update
with t as (select 1) select * from t
with recursive t(n) as (select 1 union all select n + 1 from t) select * from t
select $$ ; drop table users $$
select $tag$ ; drop table users $tag$
select 1 -- ; drop table users
select 1 /* ; drop table users */
explain delete from users
explain select 1
show tables
describe users
begin; select 1; commit
set search_path = x
values (1), (2)
table users
pragma table_info(users)
pragma user_version
copy users to stdout
select [order] from t
select 'it''s; drop table x'
""".strip().splitlines()
CHANGES = """
insert into users values (1)
insert into users (a, b) values (1, 2) on conflict (a) do update set b = 3
update users set a = 1 where id = 2
delete from users where id = 1
with d as (delete from users returning *) select * from d
with u as (update users set a = 1 returning *) select * from u
merge into a using b on a.id = b.id when matched then delete
replace into users values (1)
copy users from stdin
explain analyze delete from users
(delete from users)
select * from (delete from users returning *) x
""".strip().splitlines()
SCHEMA = """
drop table users
DROP /* x */ TABLE IF EXISTS public.users CASCADE; -- bye
alter table users drop column a
create table a (b int)
create index i on a (b)
create or replace view v as select 1
rename table a to b
truncate users
drop schema public cascade
drop database app
""".strip().splitlines()
ALWAYS = """
grant all on users to bob
revoke all on users from bob
vacuum into 'x.db'
copy users to '/tmp/x'
select * into other from users
select * from users into outfile '/tmp/x'
set global x = 1
set session_replication_role = replica
alter system set x = 1
alter role bob superuser
kill 5
notify x
reset master
lock table users
""".strip().splitlines()
UNREADABLE = """
do $$ begin drop table users; end $$
call wipe()
select wipe()
select public.count(1)
select "wipe"()
select pg_terminate_backend(1)
select lo_export(1, '/x')
select load_extension('x')
copy users to program 'sh'
create function f() returns int as 'x' language c
create trigger t after insert on a execute function f()
create extension plpython3u
attach 'x.db' as x
pragma writable_schema = 1
prepare p as delete from users
execute p
load 'x'
select 'unfinished
select 1 /* unfinished
select 1 /*! ; drop table users */
select 1 /* a /* b */ ; drop table users */
select 1 # comment
nonsense
update users set a = wipe()
""".strip().splitlines()


@pytest.mark.parametrize("text", READS)
def test_reading_is_reading(text: str) -> None:
    assert read_sql(text).cls == READ, read_sql(text)


@pytest.mark.parametrize("text", CHANGES)
def test_changed_rows_come_back_only_where_somebody_keeps_them(text: str) -> None:
    assert [read_sql(text, undo=undo).cls for undo in (NONE, ROWS, WHOLE)] == [IRREVERSIBLE, RESTORABLE, RESTORABLE]


@pytest.mark.parametrize("text", SCHEMA)
def test_bad_case_13_e08_a_changed_schema_comes_back_only_with_the_whole_file(text: str) -> None:
    assert [read_sql(text, undo=undo).cls for undo in (NONE, WHOLE)] == [IRREVERSIBLE, RESTORABLE]
    if "truncate" not in text:
        assert read_sql(text, undo=ROWS).cls == IRREVERSIBLE


@pytest.mark.parametrize("text", ALWAYS)
def test_rights_files_and_settings_never_come_back(text: str) -> None:
    for undo in (NONE, ROWS, WHOLE):
        assert read_sql(text, undo=undo).cls == IRREVERSIBLE


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_may_do_anything_is_opaque(text: str) -> None:
    for undo in (NONE, ROWS, WHOLE):
        assert read_sql(text, undo=undo).cls == OPAQUE, read_sql(text)


@pytest.mark.parametrize("first", READS)
def test_the_worst_of_several_statements_counts(first: str) -> None:
    if "--" in first:
        first += "\n"
    assert read_sql(f"{first}; drop table users").cls == IRREVERSIBLE
    assert read_sql(f"drop table users; {first}").cls == IRREVERSIBLE


def test_a_change_of_every_row_is_told_from_one_of_some() -> None:
    assert not read_sql("delete from users").statements[0].is_bounded
    assert read_sql("delete from users where id = 1").statements[0].is_bounded
    assert "all of them" in read_sql("update users set a = 1").reason


def test_where_dialects_disagree_the_worse_reading_counts() -> None:
    """A backslash ends the string in one dialect and not in the other."""
    assert read_sql(r"select '\'; drop table users; --'").cls == IRREVERSIBLE
    assert read_sql(r"select '\\'; drop table users; --'").cls == IRREVERSIBLE


def test_tidying_up_changes_nothing_that_can_be_seen() -> None:
    assert read_sql("vacuum").cls == read_sql("analyze users").cls == REVERSIBLE


def test_nothing_is_nothing() -> None:
    assert read_sql("").cls == read_sql(" ; ;\n-- x").cls == READ


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text(alphabet="selctdropab '\"$;-/*()[]\\\n`#x1", max_size=60))
def test_no_text_makes_the_reader_fail_or_a_later_drop_vanish(text: str) -> None:
    """Whatever stands before it (short of opening a quote or comment that swallows it): never mistaken for reading
    alone."""
    assert rank(read_sql(text).cls) >= rank(READ)
    if not any(sign in text for sign in "'\"`[$-/*\\#"):
        assert rank(read_sql(f"{text}; drop table users").cls) >= rank(IRREVERSIBLE)
