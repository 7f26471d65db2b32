"""`reprieve undo`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import Cli

TEXT = "".join(f"line {n}\n" for n in range(1, 31))


def edit(path: Path, number: int, word: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = f"{word}\n"
    path.write_text("".join(lines))


@pytest.fixture
def three_steps(cli: Cli, project: Path) -> Path:
    """Three runs that each change another place of one file, and each make one."""
    (project / "text").write_text(TEXT)
    cli("checkpoint", "start")
    for step, number in (("one", 3), ("two", 14), ("three", 25)):
        cli("run", "--label", step, "--", "sh", "-c", f"sed -i '{number}s/.*/{step}/' text; echo {step} > {step}.txt")
    return project


def test_it_takes_a_step_out_of_the_middle_and_keeps_the_others(cli: Cli, three_steps: Path) -> None:
    answer = cli("undo", "step:two", "--json").json
    lines = (three_steps / "text").read_text().splitlines()
    assert (lines[2], lines[13], lines[24]) == ("one", "line 14", "three")
    assert not (three_steps / "two.txt").exists()
    assert answer["report"]["deleted"] == ["two.txt"]
    assert {a["path"]: a["verb"] for a in answer["plan"]["actions"]} == {"text": "merge", "two.txt": "delete"}


def test_redo_takes_an_undo_back(cli: Cli, three_steps: Path) -> None:
    before = {path.name: path.read_bytes() for path in three_steps.iterdir() if path.is_file()}
    cli("undo", "step:two")
    cli("redo")
    assert {path.name: path.read_bytes() for path in three_steps.iterdir() if path.is_file()} == before


def test_without_a_name_it_walks_back_step_by_step(cli: Cli, three_steps: Path) -> None:
    for gone in ("three.txt", "two.txt", "one.txt"):
        assert cli("undo", "--json").json["report"]["deleted"] == [gone]
    assert (three_steps / "text").read_text() == TEXT
    assert cli("undo", check=False).code == 2


def test_a_step_that_is_undone_already_is_passed_over(cli: Cli, project: Path) -> None:
    """Taken out of the middle before, it has nothing left but the times of its folder."""
    for name in ("one", "two", "three"):
        cli("run", "--label", name, "--", "touch", name)
    cli("undo", "step:two")
    assert cli("undo", "--json").json["report"]["deleted"] == ["three"]
    assert cli("undo", "--json").json["report"]["deleted"] == ["one"]
    assert cli("undo", check=False).code == 2


@pytest.mark.parametrize("is_redone", [False, True])
def test_steps_that_a_rollback_took_back_are_passed_over(cli: Cli, project: Path, is_redone: bool) -> None:
    """All of them changed the same lines, so none could be taken out of what the rollback left."""
    text = project / "text"
    text.write_text(TEXT)
    cli("checkpoint", "start")
    for name in ("one", "two", "three"):
        cli("run", "--label", name, "--", "sh", "-c", f"echo {name} >> text")
    cli("rollback", "step:two")
    if is_redone:
        cli("redo")
        cli("undo")
        cli("undo")
    assert text.read_text() == TEXT + "one\n"
    cli("undo")
    assert text.read_text() == TEXT
    assert cli("undo", check=False).code == 2
    for _ in range(4 if is_redone else 2):
        cli("redo", check=False)
    assert text.read_text() == TEXT + "one\ntwo\nthree\n"


def test_steps_that_were_merged_out_of_a_persons_work_are_passed_over(cli: Cli, project: Path) -> None:
    """They changed the same lines, and are not to be taken out of what the merges left."""
    text = project / "text"
    text.write_text(TEXT)
    cli("checkpoint", "start")
    cli("run", "--", "touch", "first")
    for name in ("one", "two"):
        cli("run", "--label", name, "--", "sh", "-c", f"echo {name} >> text")
    edit(text, 2, "mine")
    mine = text.read_text()
    cli("undo")
    cli("undo")
    assert text.read_text() == mine.removesuffix("one\ntwo\n")
    assert cli("undo", "--json").json["report"]["deleted"] == ["first"]
    assert cli("undo", check=False).code == 2
    for _ in range(3):
        cli("redo")
    assert text.read_text() == mine and (project / "first").exists()
    cli("undo")
    assert text.read_text() == mine.removesuffix("two\n")


def test_a_step_that_is_undone_already_is_not_said_to_be_undone_again(cli: Cli, project: Path) -> None:
    for name in ("one", "two"):
        cli("run", "--label", name, "--", "touch", name)
    cli("undo", "step:one")
    cli("undo", "step:two")
    again = cli("undo", "step:one")
    assert "Undid" not in again.out and "set times" not in again.out
    assert not cli("undo", "step:one", "--json").json["report"]["operation"]


def test_an_id_from_the_log_names_a_step(cli: Cli, three_steps: Path) -> None:
    sealed = next(e for e in cli("log", "--json").json["entries"] if e["step"] == "one")
    cli("undo", sealed["id"])
    assert not (three_steps / "one.txt").exists() and (three_steps / "two.txt").exists()


def test_the_id_of_the_checkpoint_before_a_run_means_what_a_person_did_until_then(cli: Cli, three_steps: Path) -> None:
    """It takes back what `show` shows of that id, and not the run that begins there."""
    (three_steps / "mine").write_text("x")
    cli("run", "--label", "four", "--", "sh", "-c", "echo four > four.txt")
    before = cli("show", "before four", "--json").json
    assert [change["path"] for change in before["changes"]] == ["mine"]
    assert cli("undo", before["entry"]["id"], "--json").json["report"]["deleted"] == ["mine"]
    assert (three_steps / "four.txt").exists()


@pytest.mark.parametrize("label", ["before two", "before first"])
def test_where_a_run_begins_and_nothing_ends_the_runs_own_id_is_named(cli: Cli, project: Path, label: str) -> None:
    cli("run", "--label", "first", "--", "touch", "one")
    cli("run", "--label", "two", "--", "touch", "two")
    refused = cli("undo", label, check=False)
    assert refused.code == 2 and (project / "two").exists() and (project / "one").exists()
    name = label.removeprefix("before ")
    cli(*refused.err.strip().rpartition(f"take back '{name}', which begins there: reprieve ")[2].split())
    assert [(project / "one").exists(), (project / "two").exists()] == [name != "first", name != "two"]


def test_a_checkpoint_inside_of_a_run_ends_a_step_of_its_own(cli: Cli, project: Path) -> None:
    middle = f"{sys.executable} -m reprieve checkpoint middle"
    cli("run", "--label", "long", "--", "sh", "-c", f"touch early; {middle}; touch late")
    assert cli("undo", "middle", "--json").json["report"]["deleted"] == ["early"]
    assert (project / "late").exists()


def test_later_steps_in_the_same_lines_are_named_and_nothing_is_touched(cli: Cli, three_steps: Path) -> None:
    cli("run", "--label", "again", "--", "sed", "-i", "14s/.*/again/", "text")
    again = next(e["id"] for e in cli("log", "--json").json["entries"] if e["step"] == "again")
    refused = cli("undo", "step:two", "--json", check=False)
    assert refused.code == 4
    assert refused.json["error"]["dependants"] == [again]
    assert "again" in refused.json["error"]["reasons"]["text"]
    assert (three_steps / "two.txt").exists()


def test_tail_takes_the_dependants_along(cli: Cli, three_steps: Path) -> None:
    cli("run", "--label", "again", "--", "sed", "-i", "14s/.*/again/", "text")
    cli("undo", "step:two", "--tail")
    lines = (three_steps / "text").read_text().splitlines()
    assert (lines[2], lines[13], lines[24]) == ("one", "line 14", "three")
    assert not (three_steps / "two.txt").exists()


def test_a_file_in_a_directory_that_the_step_made_depends_on_it(cli: Cli, project: Path) -> None:
    cli("run", "--label", "make", "--", "mkdir", "made")
    cli("run", "--label", "fill", "--", "sh", "-c", "echo x > made/x")
    refused = cli("undo", "step:make", "--json", check=False)
    assert refused.code == 4 and "fill" in refused.json["error"]["reasons"]["made"]
    cli("undo", "step:make", "--tail")
    assert not (project / "made").exists()


def test_a_persons_work_since_stays(cli: Cli, three_steps: Path) -> None:
    edit(three_steps / "text", 9, "mine")
    (three_steps / "notes").write_text("mine")
    cli("undo", "step:two")
    lines = (three_steps / "text").read_text().splitlines()
    assert (lines[2], lines[8], lines[13]) == ("one", "mine", "line 14")
    assert (three_steps / "notes").exists()


def test_without_windows_the_last_step_is_what_changed_since_the_last_checkpoint(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").write_text("x")
    cli("undo")
    assert not (project / "new").exists()


def test_a_dry_run_touches_nothing(cli: Cli, three_steps: Path) -> None:
    shown = cli("undo", "--dry-run").out
    assert "three.txt" in shown and (three_steps / "three.txt").exists()


def test_a_step_that_is_not_there_is_an_error(cli: Cli, three_steps: Path) -> None:
    assert cli("undo", "step:nothing", check=False).code == 2
    assert cli("undo", "turn:7", check=False).code == 2


@pytest.fixture
def a_run_in_a_run(cli: Cli, project: Path) -> Path:
    inner = f"{sys.executable} -m reprieve run --label inner -- sh -c 'echo i > inner.txt'"
    cli("run", "--label", "outer", "--", "sh", "-c", f"echo a > first.txt; {inner}; echo b > last.txt")
    return project


def test_a_run_in_a_run_is_a_step_of_its_own(cli: Cli, a_run_in_a_run: Path) -> None:
    actors = {c["path"]: c["actor"] for c in cli("status", "--since", "before outer", "--json").json["changes"]}
    assert actors == {"first.txt": "run:outer", "inner.txt": "run:inner", "last.txt": "run:outer"}
    cli("undo", "step:inner")
    assert not (a_run_in_a_run / "inner.txt").exists() and (a_run_in_a_run / "last.txt").exists()


def test_undoing_the_outer_run_takes_the_inner_one_along(cli: Cli, a_run_in_a_run: Path) -> None:
    assert cli("undo", "step:outer", "--json").json["report"]["deleted"] == ["first.txt", "inner.txt", "last.txt"]
    cli("redo")
    assert (a_run_in_a_run / "inner.txt").exists()


def test_a_step_that_was_pruned_is_not_said_to_be_undone(cli: Cli, three_steps: Path) -> None:
    cli("prune", "--yes", "--keep-last", "1", "--keep-days", "0")
    refused = cli("undo", "step:one", check=False)
    assert refused.code == 2 and "was pruned" in refused.err and (three_steps / "one.txt").exists()


def test_a_checkpoint_whose_predecessor_was_pruned_cannot_be_undone(cli: Cli, project: Path) -> None:
    """What was there before is gone by a person's wish: a plain answer, and no talk of damage then or later."""
    for number in range(4):
        (project / "n").write_text(str(number))
        cli("checkpoint", f"n{number}")
    cli("prune", "--keep-last", "1", "--keep-days", "0", "--yes")
    for words in ((), ("n3",)):
        refused = cli("undo", *words, "--json", check=False)
        assert refused.code == 2 and refused.json["error"]["code"] == "bad_ref"
    assert (project / "n").read_text() == "3"
    cli("verify")
