"""Whose work a rollback takes back, and whose it leaves: the agent's goes, the person's stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support import Cli
from support.tree import fingerprint

TEXT = "".join(f"line {n}\n" for n in range(1, 31))


def line(path: Path, number: int) -> str:
    return path.read_text().splitlines()[number - 1]


def put(path: Path, number: int, word: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = f"{word}\n"
    path.write_text("".join(lines))


@pytest.fixture
def start(cli: Cli, project: Path) -> str:
    (project / "text").write_text(TEXT)
    return str(cli("checkpoint", "start", "--json").json["checkpoint"]["id"])


def agent(cli: Cli, script: str, label: str = "agent") -> None:
    cli("run", "--label", label, "--", "sh", "-c", script)


def changes(cli: Cli, start: str) -> dict[str, Any]:
    return {c["path"]: c["actor"] for c in cli("status", "--since", start, "--json").json["changes"]}


def test_status_says_who(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text; echo x > made")
    put(project / "text", 20, "mine")
    (project / "notes").write_text("mine")
    assert changes(cli, start) == {"text": "run:agent,person", "made": "run:agent", "notes": "person"}
    shown = cli("status", "--since", start).out
    assert "by run:agent and you" in shown and "notes  by you" in shown


def test_the_agents_lines_go_and_the_persons_stay(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text; echo x > made; rm README.md")
    put(project / "text", 20, "mine")
    (project / "notes").write_text("mine")
    answer = cli("rollback", start, "--json").json
    assert (line(project / "text", 3), line(project / "text", 20)) == ("line 3", "mine")
    assert (project / "notes").exists() and (project / "README.md").exists() and not (project / "made").exists()
    assert [k["path"] for k in answer["report"]["kept"]] == ["notes"]
    assert next(a for a in answer["plan"]["actions"] if a["path"] == "text")["verb"] == "merge"


def test_what_a_person_did_before_the_first_window_stays_too(cli: Cli, project: Path, start: str) -> None:
    (project / "notes").write_text("mine")
    agent(cli, "echo x > made")
    cli("rollback", start)
    assert (project / "notes").exists() and not (project / "made").exists()


def test_without_any_window_everything_goes_back(cli: Cli, project: Path, start: str) -> None:
    """Nobody knows who it was: it counts as the agent's."""
    (project / "made").write_text("x")
    cli("checkpoint", "between")
    put(project / "text", 3, "x")
    cli("rollback", start)
    assert not (project / "made").exists() and (project / "text").read_text() == TEXT


def test_everything_takes_the_persons_back_as_well(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo x > made")
    (project / "notes").write_text("mine")
    shown = cli("rollback", start, "--everything", "--dry-run").out
    assert "notes  (was not there, by you)" in shown
    cli("rollback", start, "--everything")
    assert not (project / "notes").exists() and not (project / "made").exists()


def test_the_same_lines_are_a_conflict_and_nothing_is_touched(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text; echo x > made")
    put(project / "text", 3, "mine")
    refused = cli("rollback", start, "--json", check=False)
    assert refused.code == 4
    assert refused.json["error"]["conflicts"] == ["text"]
    assert (project / "made").exists() and line(project / "text", 3) == "mine"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("keep", "mine"), ("theirs", "line 3"), ("both", "mine"), ("merge", "<<<<<<< you")],
)
def test_a_conflict_is_settled_as_chosen(cli: Cli, project: Path, start: str, choice: str, expected: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text; echo x > made")
    put(project / "text", 3, "mine")
    code = cli("rollback", start, "--on-conflict", choice, check=False).code
    assert code == (6 if choice == "merge" else 0)
    assert line(project / "text", 3) == expected
    assert not (project / "made").exists()
    beside = project / f"text.checkpoint-{start}"
    assert beside.exists() == (choice == "both")
    if choice == "both":
        assert beside.read_text() == TEXT
    if choice == "merge":
        text = (project / "text").read_text()
        assert "mine\n=======\nline 3\n>>>>>>> before run:agent\n" in text


@pytest.mark.parametrize("verb", ["rollback", "undo"])
def test_conflict_markers_are_named(cli: Cli, project: Path, start: str, verb: str) -> None:
    """The file is for the person to decide: so says the plan, the report, and the exit code."""
    agent(cli, "sed -i 3s/.*/agent/ text")
    put(project / "text", 3, "mine")
    command = (verb, start if verb == "rollback" else "step:agent", "--on-conflict", "merge")
    reason = "changed by run:agent and by you in the same lines; both sides stand in it, between conflict markers"
    plan = cli(*command, "--dry-run", "--json").json["plan"]
    assert [a["reason"] for a in plan["actions"] if a["path"] == "text"] == [reason] and plan["conflicts"] == []
    before = len(cli("log", "--all", "--json").json["entries"])
    result = cli(*command, "--json", check=False)
    (conflict,) = result.json["report"]["conflicts"]
    assert result.code == 6 and (conflict["path"], conflict["reason"]) == ("text", reason)
    assert "text" in result.json["report"]["restored"] and line(project / "text", 3) == "<<<<<<< you"
    assert len(cli("log", "--all", "--json").json["entries"]) == before + 2  # what was there, and the move
    cli("redo")
    assert f"! text: for you to decide, {reason}" in cli(*command, check=False).out


def test_redo_after_a_merge_brings_both_back(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text")
    put(project / "text", 20, "mine")
    before = (project / "text").read_bytes()
    cli("rollback", start)
    cli("redo")
    assert (project / "text").read_bytes() == before
    cli("rollback", start)
    assert (line(project / "text", 3), line(project / "text", 20)) == ("line 3", "mine")


def test_a_second_rollback_has_nothing_left_to_do(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text")
    put(project / "text", 20, "mine")
    cli("rollback", start)
    assert cli("rollback", start, "--json").json["plan"]["actions"] == []


def test_a_file_that_an_agent_made_and_a_person_edited_is_a_conflict(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo x > made")
    (project / "made").write_text("x\nmine\n")
    assert cli("rollback", start, check=False).code == 4
    cli("rollback", start, "--on-conflict", "keep")
    assert (project / "made").read_text() == "x\nmine\n"


def test_a_file_that_a_person_deleted_stays_deleted(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text")
    (project / "text").unlink()
    cli("rollback", start)
    assert not (project / "text").exists()


def test_a_directory_deleted_by_the_agent_and_made_again_by_the_person(cli: Cli, project: Path) -> None:
    (project / "folder").mkdir()
    (project / "folder" / "old").write_text("old")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "rm -r folder")
    (project / "folder").mkdir()
    (project / "folder" / "new").write_text("mine")
    cli("rollback", start)
    assert sorted(path.name for path in (project / "folder").iterdir()) == ["new", "old"]


def test_moved_by_the_agent_and_edited_by_the_person(cli: Cli, project: Path, start: str) -> None:
    """The edit follows the file back to its place."""
    agent(cli, "mv text moved")
    put(project / "moved", 20, "mine")
    cli("rollback", start)
    assert not (project / "moved").exists()
    assert (project / "text").read_text() == TEXT.replace("line 20\n", "mine\n")


def test_edited_by_the_agent_and_moved_by_the_person(cli: Cli, project: Path, start: str) -> None:
    """It stays where the person put it, without the agent's edit."""
    agent(cli, "sed -i 3s/.*/agent/ text")
    (project / "text").rename(project / "moved")
    cli("rollback", start)
    assert not (project / "text").exists()
    assert (project / "moved").read_text() == TEXT


def test_a_mode_by_one_and_content_by_the_other(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text")
    (project / "text").chmod(0o600)
    cli("rollback", start)
    assert (project / "text").read_text() == TEXT
    assert (project / "text").stat().st_mode & 0o777 == 0o600


def test_content_by_the_person_and_a_mode_by_the_agent(cli: Cli, project: Path, start: str) -> None:
    mode = (project / "text").stat().st_mode & 0o777
    agent(cli, "chmod 777 text")
    put(project / "text", 20, "mine")
    cli("rollback", start)
    assert line(project / "text", 20) == "mine"
    assert (project / "text").stat().st_mode & 0o777 == mode


def test_binary_files_that_both_changed_are_a_conflict(cli: Cli, project: Path) -> None:
    (project / "bin").write_bytes(b"\0one" * 10)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "printf '\\000two' > bin")
    (project / "bin").write_bytes(b"\0three")
    assert cli("rollback", start, check=False).code == 4
    cli("rollback", start, "--on-conflict", "both")
    assert (project / "bin").read_bytes() == b"\0three"
    assert (project / f"bin.checkpoint-{start}").read_bytes() == b"\0one" * 10


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("last", ["", "no end"])
def test_line_ends_and_a_missing_last_one_survive_a_merge(cli: Cli, project: Path, end: str, last: str) -> None:
    text = "".join(f"line {n}{end}" for n in range(1, 31)) + last
    (project / "text").write_bytes(text.encode())
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "sed -i 's/line 3\\b/agent/' text")
    (project / "text").write_bytes((project / "text").read_bytes().replace(b"line 20", b"mine"))
    cli("rollback", start)
    assert (project / "text").read_bytes() == text.replace("line 20", "mine").encode()


def test_K09_two_agents_one_is_taken_back(cli: Cli, project: Path, start: str) -> None:
    """The other's work stays, in other files and in other lines; the same lines are a conflict."""
    agent(cli, "sed -i 3s/.*/A/ text; echo a > a.txt", "A")
    agent(cli, "sed -i 20s/.*/B/ text; echo b > b.txt", "B")
    cli("rollback", start, "--actor", "run:A")
    assert (line(project / "text", 3), line(project / "text", 20)) == ("line 3", "B")
    assert not (project / "a.txt").exists() and (project / "b.txt").exists()
    cli("redo")
    agent(cli, "sed -i 3s/.*/B/ text", "B")
    refused = cli("rollback", start, "--actor", "run:A", "--json", check=False)
    assert refused.code == 4 and "run:B" in refused.json["error"]["reasons"]["text"]


def test_log_and_diff_can_be_asked_for_one_actor(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo a > a.txt", "A")
    (project / "notes").write_text("mine")
    agent(cli, "echo b > b.txt", "B")
    assert [e["step"] for e in cli("log", "--actor", "run:A", "--json").json["entries"]] == ["A"]
    assert {e["step"] for e in cli("log", "--actor", "run", "--json").json["entries"]} == {"A", "B"}
    found = cli("diff", start, "--actor", "person", "--json").json["changes"]
    assert [c["path"] for c in found] == ["notes"]


def test_an_actor_that_did_nothing_is_said(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo a > a.txt", "A")
    assert cli("rollback", start, "--actor", "run:Z", check=False).code == 2


def test_K11_a_process_that_outlives_its_run_makes_it_unknown(cli: Cli, project: Path, start: str) -> None:
    """What changes while it lives may be its work or a person's: nobody is said to have done it."""
    os.mkfifo(project / "go")
    cli(
        "run",
        "--label",
        "agent",
        "--",
        "sh",
        "-c",
        "(read x < go; echo late > late.txt) > /dev/null 2>&1 & echo now > now.txt",
    )
    (project / "early").write_text("while it lives")
    assert changes(cli, start)["early"] == "unknown"
    (project / "go").write_text("x\n")
    for _ in range(1000):
        if (project / "late.txt").exists() and (project / "late.txt").read_text():
            break
    assert changes(cli, start)["late.txt"] == "unknown"


def test_a_run_that_was_killed_leaves_no_open_window(cli: Cli, project: Path, start: str) -> None:
    cli("run", "--label", "dead", "--", "sh", "-c", "echo x > made; kill -9 $PPID", check=False)
    (project / "after").write_text("maybe mine")
    assert changes(cli, start) == {"made": "unknown", "after": "unknown"}
    cli("checkpoint")
    (project / "mine").write_text("mine")
    assert changes(cli, start)["mine"] == "person"


@pytest.mark.parametrize("choice", ["keep", "theirs", "both"])
def test_a_file_that_became_a_directory_with_a_persons_file_in_it(cli: Cli, project: Path, choice: str) -> None:
    """A conflict, and each way out of it works; what is there comes back by redo."""
    (project / "d").write_text("a file\n")
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", "rm d; mkdir d; echo agent > d/agent; echo bad > README.md")
    (project / "d" / "mine").write_text("mine")
    there = fingerprint(project)
    assert cli("rollback", "start", check=False).code == 4 and fingerprint(project) == there
    cli("rollback", "start", "--on-conflict", choice)
    if choice == "theirs":
        assert (project / "d").read_text() == "a file\n"
    else:
        assert (project / "d" / "mine").read_text() == "mine" and not (project / "d" / "agent").exists()
    beside = [path.read_text() for path in project.glob("d.checkpoint-*")]
    assert beside == (["a file\n"] if choice == "both" else [])
    assert (project / "README.md").read_text().startswith("# A project")
    cli("redo")
    assert fingerprint(project) == there


def test_only_leaves_the_last_copy_of_what_an_agent_moved_there(cli: Cli, project: Path, start: str) -> None:
    """Where it was is not selected, so it does not come back there: here it must not go."""
    agent(cli, "true", "first")
    (project / "mine").write_text("my work\n")
    agent(cli, "mv mine src/util.py", "second")
    result = cli("rollback", "step:first", "--only", "src", "--json", check=False)
    assert result.code == 4
    assert result.json["error"]["reasons"] == {"src/util.py": "holds what was at mine, which is not selected"}
    assert (project / "src" / "util.py").read_text() == "my work\n"
    cli("rollback", "step:first", "--only", "src", "--only", "mine")
    assert (project / "mine").read_text() == "my work\n"
    assert (project / "src" / "util.py").read_text() != "my work\n"


def test_only_follows_what_an_agent_moved_and_edited_on_the_way(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "mv text between", "first")
    agent(cli, "echo more >> between", "second")
    agent(cli, "mv between src/text", "third")
    result = cli("rollback", "start", "--only", "src", "--json", check=False)
    assert result.code == 4
    assert result.json["error"]["reasons"] == {"src/text": "holds what was at text, which is not selected"}
    cli("rollback", "start", "--only", "src", "--on-conflict", "keep")
    assert (project / "src" / "text").read_text() == TEXT + "more\n"
    cli("rollback", "start", "--only", "text")
    cli("rollback", "start", "--only", "src")  # now there is another copy
    assert (project / "text").read_text() == TEXT and not (project / "src" / "text").exists()


def test_only_takes_a_copy_whose_original_is_there(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "cp text src/text; cp text copy; rm text")
    cli("rollback", "start", "--only", "src")
    assert not (project / "src" / "text").exists() and (project / "copy").read_text() == TEXT


def test_only_does_not_take_the_last_copy_to_make_room_for_a_directory(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "rm -r src; mv text src")
    result = cli("rollback", "start", "--only", "src/main.py", "--json", check=False)
    assert result.code == 4 and result.json["error"]["conflicts"] == ["src/main.py"]
    assert (project / "src").read_text() == TEXT


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("then", ["", "; echo a file now > d"])
def test_only_brings_a_file_back_together_with_its_directory(
    cli: Cli, project: Path, start: str, is_new: bool, then: str
) -> None:
    """Gone or replaced, and whether the directory was there at the target or a person made it since."""
    agent(cli, "true", "first")
    (project / "d").mkdir()
    (project / "d" / "a").write_text("a\n")
    (project / "d" / "b").write_text("b\n")
    target = "step:first"
    if not is_new:
        target = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, f"rm -r d{then}", "second")
    there = fingerprint(project)
    promised = cli("rollback", target, "--only", "d/a", "--dry-run", "--json").json["plan"]["actions"]
    assert [action["path"] for action in promised] == ["d", "d/a"]
    cli("rollback", target, "--only", "d/a")
    assert [(path.name, path.read_text()) for path in (project / "d").iterdir()] == [("a", "a\n")]
    cli("redo")
    assert fingerprint(project) == there


def test_only_leaves_a_person_their_file_where_a_directory_was(cli: Cli, project: Path) -> None:
    (project / "d").mkdir()
    (project / "d" / "a").write_text("a\n")
    cli("checkpoint", "start")
    agent(cli, "rm d/a")
    (project / "d").rmdir()
    (project / "d").write_text("mine\n")
    result = cli("rollback", "start", "--only", "d/a", "--json", check=False)
    (left,) = result.json["report"]["not_undone"]
    assert result.code == 6 and left["path"] == "d/a" and left["reason"].startswith("its directory was replaced by you")
    assert (project / "d").read_text() == "mine\n"


def test_both_puts_the_checkpoints_beside_also_with_only(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo theirs > text; echo theirs > README.md")
    (project / "text").write_text("mine\n")
    plain = cli("rollback", "start", "--only", "text", "--on-conflict", "both").out
    beside = f"text.checkpoint-{start}"
    assert f"beside it as {beside}" in plain
    assert (project / beside).read_text() == TEXT and (project / "text").read_text() == "mine\n"
    assert (project / "README.md").read_text() == "theirs\n"
    again = cli("rollback", "start", "--only", "text", "--on-conflict", "both").out
    assert again.startswith("Nothing was changed: what differs from") and f"beside it as {beside}" in again
    cli("redo")
    assert not (project / beside).exists()


def test_what_is_kept_is_never_said_to_be_as_it_was(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo theirs > text")
    (project / "text").write_text("mine\n")
    for more in ((), ("--dry-run",)):
        out = cli("rollback", "start", "--only", "text", "--on-conflict", "keep", *more).out
        assert f'Nothing was changed: what differs from {start} "start" is kept' in out
        assert "as it was" not in out and "= kept      text" in out


@pytest.mark.parametrize("deed", ["rm d/mine", "rm -r d"])
def test_a_file_of_a_persons_that_an_agent_deleted_comes_back_into_a_directory_of_the_agents(
    cli: Cli, project: Path, start: str, deed: str
) -> None:
    agent(cli, "mkdir d; echo agent > d/made", "one")
    (project / "d/mine").write_text("my notes")
    agent(cli, deed, "two")
    cli("rollback", start)
    assert (project / "d/mine").read_text() == "my notes" and not (project / "d/made").exists()


@pytest.mark.parametrize("choice", ["keep", "both"])
def test_what_an_agent_moved_stays_where_it_is_while_something_else_is_at_its_place(
    cli: Cli, project: Path, choice: str
) -> None:
    (project / "d").mkdir()
    (project / "d/a").write_text("a")
    start = str(cli("checkpoint", "--json").json["checkpoint"]["id"])
    agent(cli, "mv d x")
    (project / "d").write_text("mine")
    cli("rollback", start, "--on-conflict", choice)
    assert (project / "x/a").read_text() == "a" and (project / "d").read_text() == "mine"


def test_a_copy_beside_is_written_again_or_said_to_be_missing(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "sed -i 3s/.*/agent/ text")
    put(project / "text", 3, "mine")
    beside = project / f"text.checkpoint-{start}"
    for _ in range(2):
        cli("rollback", start, "--on-conflict", "both")
        assert beside.read_text() == TEXT
        cli("redo")
        assert not beside.exists()
    beside.write_text("something else")
    (kept,) = (
        k
        for k in cli("rollback", start, "--on-conflict", "both", "--json").json["report"]["kept"]
        if k["path"] == "text"
    )
    assert "is not beside it" in kept["reason"] and beside.read_text() == "something else"


def test_a_file_that_cannot_come_back_because_of_what_a_person_put_there_is_named(
    cli: Cli, project: Path, start: str
) -> None:
    """It is younger than the checkpoint, so nothing else would tell of it."""
    agent(cli, "mkdir d", "one")
    (project / "d/sub").mkdir()
    (project / "d/sub/mine").write_text("my notes")
    agent(cli, "rm -r d", "two")
    (project / "d").write_text("later")
    result = cli("rollback", start, "--json", check=False)
    (left,) = result.json["report"]["not_undone"]
    assert result.code == 6 and left["path"] == "d/sub/mine" and (project / "d").read_text() == "later"
    assert left["reason"].startswith("its directory was replaced by you; to have it back: move d away, then")
    (project / "d").unlink()
    cli(*left["reason"].rpartition("then reprieve ")[2].split())
    assert (project / "d/sub/mine").read_text() == "my notes"


@pytest.mark.parametrize("choice", ["keep", "both"])
def test_a_kept_conflict_in_a_deleted_file_is_named_when_it_comes_back(
    cli: Cli, project: Path, start: str, choice: str
) -> None:
    """What is back has the agent's part in it: that is not what "restored" alone would say."""
    agent(cli, "sed -i 3s/.*/agent/ text", "one")
    put(project / "text", 3, "agent and me")
    before = (project / "text").read_text()
    agent(cli, "rm text", "two")
    answer = cli("rollback", start, "--on-conflict", choice, "--json").json
    assert (project / "text").read_text() == before
    (kept,) = answer["report"]["kept"]
    assert kept["path"] == "text" and kept["reason"].startswith("changed by run:one and by you in the same lines")
    assert "nothing is taken out of it" in kept["reason"] and answer["plan"]["kept"] == [kept]
    assert "text" in answer["report"]["restored"]
    cli("redo")
    assert not (project / "text").exists()


@pytest.mark.parametrize("choice", ["keep", "both"])
def test_a_kept_conflict_that_has_no_folder_to_come_back_to_is_named(cli: Cli, project: Path, choice: str) -> None:
    """A person's line would otherwise be in no file, with nothing said."""
    (project / "d").mkdir()
    (project / "d/text").write_text(TEXT)
    start = str(cli("checkpoint", "--json").json["checkpoint"]["id"])
    agent(cli, "sed -i 3s/.*/agent/ d/text", "one")
    put(project / "d/text", 3, "agent and me")
    agent(cli, "rm -r d; echo x > made", "two")
    (project / "d").write_text("mine")
    answer = cli("rollback", start, "--on-conflict", choice, "--json", check=False)
    (left,) = answer.json["report"]["not_undone"]
    assert answer.code == 6 and left["path"] == "d/text" and "its folder is gone or something else" in left["reason"]
    assert (project / "d").read_text() == "mine" and not (project / "made").exists()


def test_a_kept_conflict_brings_the_agents_folder_back_that_it_was_in(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "mkdir d; seq 9 > d/text", "one")
    put(project / "d/text", 3, "mine")
    agent(cli, "rm -r d", "two")
    answer = cli("rollback", start, "--on-conflict", "keep", "--json").json
    assert line(project / "d/text", 3) == "mine"
    assert [k["path"] for k in answer["report"]["kept"]] == ["d/text"]
