"""`reprieve rollback`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

import reprieve
from reprieve.files import steps
from support import Cli
from support.settings import write_accepted
from support.terminal import at_terminal


@pytest.fixture
def broken(cli: Cli, project: Path) -> Path:
    """A project with a checkpoint, and an agent's work since."""
    cli("checkpoint", "good")
    (project / "README.md").write_text("broken")
    (project / "src" / "util.py").unlink()
    (project / "junk").write_text("junk")
    return project


def is_good(project: Path) -> bool:
    return (
        (project / "README.md").read_text().startswith("# A project")
        and (project / "src" / "util.py").exists()
        and not (project / "junk").exists()
    )


def test_without_a_terminal_it_is_done_at_once(cli: Cli, broken: Path) -> None:
    result = cli("rollback")
    assert is_good(broken)
    for line in (
        "restore   README.md",
        "recreate  src/util.py",
        "delete    junk",
        "Take this back with: reprieve redo",
    ):
        assert line in result.out


def test_json_has_the_plan_and_the_report(cli: Cli, broken: Path) -> None:
    answer = cli("rollback", "good", "--json").json
    verbs = {action["path"]: (action["kind"], action["verb"]) for action in answer["plan"]["actions"]}
    assert verbs["README.md"] == ("write", "restore")
    assert verbs["src/util.py"] == ("write", "recreate")
    assert verbs["junk"] == ("delete", "delete")
    report = answer["report"]
    assert {"README.md", "src/util.py"} <= set(report["restored"])
    assert report["deleted"] == ["junk"]
    assert (report["kept"], report["conflicts"], report["effects"], report["not_undone"]) == ([], [], [], [])
    assert report["operation"] and report["safety_checkpoint"] and report["redo"] == "reprieve redo"


def test_a_dry_run_shows_the_plan_and_touches_nothing(cli: Cli, broken: Path) -> None:
    answer = cli("rollback", "--dry-run", "--json").json
    assert "report" not in answer
    assert {"id", "target", "actions", "conflicts", "kept", "not_undone"} <= answer["plan"].keys()
    assert "Nothing was touched" in cli("rollback", "--dry-run").out
    assert (broken / "README.md").read_text() == "broken"


def test_the_plan_is_exactly_what_happens(cli: Cli, broken: Path) -> None:
    planned = cli("rollback", "--dry-run", "--json").json["plan"]
    assert cli("rollback", "--json").json["plan"] == planned


def test_only_some_paths(cli: Cli, broken: Path) -> None:
    cli("rollback", "--only", "util.py", "--only", "../junk", cwd=broken / "src")
    assert (broken / "README.md").read_text() == "broken"
    assert (broken / "src" / "util.py").exists()
    assert not (broken / "junk").exists()


def test_twice_does_nothing_the_second_time(cli: Cli, broken: Path) -> None:
    cli("rollback")
    again = cli("rollback", "--json").json
    assert again["plan"]["actions"] == []
    assert again["report"]["operation"] == ""
    assert "Nothing to roll back" in cli("rollback").out


def test_at_a_terminal_the_plan_is_shown_and_confirmed(cli: Cli, broken: Path) -> None:
    code, screen = at_terminal("rollback", cwd=broken, answer="y\n", env={"NO_COLOR": "1"})
    assert code == 0
    assert screen.index("restore   README.md") < screen.index("[y/N]") < screen.index("Rolled back to")
    assert is_good(broken)


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_the_default_answer_is_the_harmless_one(cli: Cli, broken: Path, answer: str) -> None:
    code, screen = at_terminal("rollback", cwd=broken, answer=answer, env={"NO_COLOR": "1"})
    assert code == 5
    assert "nothing was touched" in screen
    assert (broken / "README.md").read_text() == "broken"


def test_yes_answers_beforehand(cli: Cli, broken: Path) -> None:
    code, screen = at_terminal("rollback", "--yes", cwd=broken, env={"NO_COLOR": "1"})
    assert code == 0
    assert "[y/N]" not in screen
    assert is_good(broken)


def test_what_changed_since_the_question_is_not_rolled_over(cli: Cli, broken: Path, tmp_path: Path) -> None:
    """Approval is bound to the plan that was shown."""
    (tmp_path / "sitecustomize.py").write_text(
        "import reprieve.cli.terminal as t\n"
        "real = t.Terminal.confirm\n"
        "def confirm(self, question):\n"
        f"    open({str(broken / 'README.md')!r}, 'w').write('mine, just now')\n"
        "    return True\n"
        "t.Terminal.confirm = confirm\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}", "NO_COLOR": "1"}
    code, screen = at_terminal("rollback", cwd=broken, env=env)
    assert code == 4, screen
    assert (broken / "README.md").read_text() == "mine, just now"


def test_what_was_there_before_is_a_checkpoint(cli: Cli, broken: Path) -> None:
    safety = cli("rollback", "--json").json["report"]["safety_checkpoint"]
    cli("rollback", safety)
    assert (broken / "README.md").read_text() == "broken"
    assert (broken / "junk").exists()


def test_no_checkpoint_yet(cli: Cli) -> None:
    cli("init")
    result = cli("rollback", check=False)
    assert result.code == 2
    assert "reprieve checkpoint" in result.err


@pytest.mark.parametrize("ref", ["latest", "~0", "good", "1s ago", "2999-01-01"])
def test_every_form_of_ref(cli: Cli, project: Path, ref: str) -> None:
    cli("checkpoint", "good")
    (project / "README.md").write_text("broken")
    if ref == "1s ago":
        time.sleep(1.1)
    cli("rollback", ref)
    assert (project / "README.md").read_text().startswith("# A project")


@pytest.mark.parametrize("ref", ["99999999999w ago", "0001-01-01", "9999-12-31T23:59:60", "~99", "~²", "", "call:x"])
def test_a_ref_that_means_nothing_is_exit_2(cli: Cli, ref: str) -> None:
    cli("checkpoint")
    assert cli("rollback", ref, check=False).code == 2


def test_files_is_what_there_is_so_far(cli: Cli, broken: Path) -> None:
    cli("rollback", "--files", "--everything", "--yes")
    assert is_good(broken)
    assert cli("rollback", "--effects").out == "No effects to undo\n"


def test_what_cannot_be_captured_now_is_left_named_and_told_by_the_exit_code(cli: Cli, broken: Path) -> None:
    """Its present content is not in the store, so it must not be replaced; the rest is taken back, and redo works."""
    write_accepted(broken, 'max_file_size = "1kB"\n')
    (broken / "README.md").write_bytes(bytes(2000))
    result = cli("rollback", "good", check=False)
    assert result.code == 6
    assert "not undone README.md: not protected now" in result.out
    assert (broken / "README.md").read_bytes() == bytes(2000)
    assert (broken / "src" / "util.py").exists() and not (broken / "junk").exists()


def test_a_gap_elsewhere_is_no_concern_of_a_part(cli: Cli, broken: Path) -> None:
    """Only what was asked for can be done in part."""
    write_accepted(broken, 'max_file_size = "1kB"\n')
    (broken / "README.md").write_bytes(bytes(2000))
    result = cli("rollback", "good", "--only", "src", check=False)
    assert (result.code, "not undone" in result.out) == (0, False)
    assert (broken / "src" / "util.py").exists()


def test_when_nothing_can_be_taken_back_it_does_not_say_that_all_is_well(cli: Cli, broken: Path) -> None:
    cli("rollback", "good")
    write_accepted(broken, 'max_file_size = "1kB"\n')
    cli("checkpoint", "configured")
    (broken / "README.md").write_bytes(bytes(2000))
    result = cli("rollback", "configured", check=False)
    assert result.code == 6
    assert "could not be taken back" in result.out and "everything is as it was" not in result.out


@pytest.mark.parametrize("command", [("revert",), ("rollback", "--only")])
@pytest.mark.parametrize("path", ["secret/key", "secret", "big"])
def test_what_is_not_protected_is_not_said_to_be_as_it_was_or_not_there(
    cli: Cli, project: Path, command: tuple[str, ...], path: str
) -> None:
    """Who names it is told that nothing was done about it, by the exit code too."""
    write_accepted(project, 'exclude = ["secret/"]\nmax_file_size = "1MB"\n')
    (project / "secret").mkdir()
    (project / "secret" / "key").write_text("1")
    (project / "big").write_bytes(bytes(2_000_000))
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", "echo agent > secret/key; yes | head -c 2000000 > big")
    result = cli(*command, path, check=False)
    assert result.code == 6 and f"! not undone {path}: not protected now: " in result.out
    assert "as it was" not in result.out + result.err and "not there" not in result.out + result.err
    whole = cli("rollback", "start").out
    assert "everything that is protected is as it was" in whole and whole.strip().endswith("not protected: big, secret")
    assert "changed no protected file here; not protected: big, secret" in cli("undo", "step:agent").out


def test_a_file_that_was_excluded_since_is_named_where_it_is_asked_for(cli: Cli, broken: Path) -> None:
    write_accepted(broken, 'exclude = ["README.md", "src/"]\n')
    for path in ("README.md", "src/util.py"):
        result = cli("revert", path, "--to", "good", "--json", check=False)
        left = result.json["report"]["not_undone"]
        assert result.code == 6 and [gap["path"] for gap in left] == [path]
        assert left[0]["reason"] == "not protected now: excluded by configuration; left as it is"


def test_effects_alone_are_answered_like_every_rollback(cli: Cli, project: Path) -> None:
    cli("checkpoint", "start")
    mark = project.parent / "undone"
    cli("record", "command", "--description", "made a mark", "--", "touch", str(mark))
    plan = cli("rollback", "start", "--effects", "--dry-run", "--json").json["plan"]
    assert [action["verb"] for action in plan["actions"]] == ["undo"]
    refused = cli("rollback", "start", "--effects", "--json", check=False)
    assert refused.code == 5 and not mark.exists()
    answer = cli("rollback", "start", "--effects", "--yes", "--json").json
    assert answer["plan"]["id"] == plan["id"]
    assert [effect["state"] for effect in answer["report"]["effects"]] == ["undone"]
    assert answer["report"]["restored"] == [] and mark.exists()
    assert cli("rollback", "start", "--effects", "--yes", "--json").json["report"]["effects"] == []


def test_a_path_that_was_never_there_is_exit_2(cli: Cli, project: Path) -> None:
    """A typing error, instead of a rollback of nothing that says all is well."""
    cli("checkpoint", "start")
    (project / "README.md").write_text("changed")
    result = cli("rollback", "start", "--only", "REDME.md", check=False)
    assert result.code == 2 and "REDME.md" in result.err
    assert cli("rollback", "start", "--only", "README.md").code == 0
    assert cli("rollback", "start", "--only", "README.md").code == 0  # nothing left to do is no error


def test_a_name_outside_that_keeps_the_agents_bytes_is_said(cli: Cli, project: Path) -> None:
    """A file linked from elsewhere is replaced, never written in place: who has the other name must know."""
    outside = project.parent / "outside.txt"
    os.link(project / "README.md", outside)
    os.link(project / "src" / "util.py", project / "src" / "twin.py")
    cli("checkpoint", "good")
    (project / "README.md").write_text("the agent's")
    (project / "src" / "util.py").write_text("the agent's")
    result = cli("rollback")
    assert (project / "README.md").read_text().startswith("# A project")
    assert (project / "src" / "twin.py").samefile(project / "src" / "util.py")
    assert outside.read_text() == "the agent's"
    assert "1 file has another name outside of the folder, which keeps what was here: README.md" in result.err


def test_effects_alone_since_what_is_no_checkpoint(cli: Cli, broken: Path) -> None:
    result = cli("rollback", "--effects", "nosuch", "--json", check=False)
    assert result.code == 2 and "nosuch" in result.json["error"]["message"]


_LOGGER = """
import mmap, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY if how == "reads" else os.O_RDWR | os.O_APPEND)
if how == "mapped":
    held = mmap.mmap(fd, 0)
    os.close(fd)
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def _logger(path: Path, how: str) -> Iterator[int]:
    """A program that has the file open until it is told to end; its pid."""
    program = [sys.executable, "-c", _LOGGER, str(path), how]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process.pid
        process.stdin.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("how", ["writes", "mapped"])
@pytest.mark.parametrize("move", [["rollback"], ["revert", "README.md", "note"], ["undo"], ["redo"]])
def test_a_program_that_has_the_file_open_for_writing_is_named(
    cli: Cli, project: Path, move: list[str], how: str
) -> None:
    """It writes on into a file without a name, so somebody has to restart it."""
    cli("run", "--", "sh", "-c", "echo theirs >> README.md; echo theirs > note")
    if move == ["redo"]:
        cli("rollback")
    with _logger(project / "README.md", how) as pid:
        result = cli(*move, "--json")
    held = result.json["report"]["held_open"]
    assert [gap["path"] for gap in held] == ["README.md"]
    assert f"(pid {pid})" in held[0]["reason"] and "restart it" in held[0]["reason"]
    assert "Warning: 'README.md' is held open for writing by " in result.err
    assert "README.md" in result.json["report"]["restored"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_what_a_program_writes_and_closes_while_it_is_looked_for_is_not_lost(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the file open when that was replaced; nobody has it open any more when all programs have been asked."""
    cli("run", "--", "sh", "-c", "echo theirs >> README.md")
    late = (project / "README.md").open("a")
    real = steps.find_writers

    def find(files: set[tuple[int, int]]) -> dict[tuple[int, int], list[tuple[int, str]]]:
        late.write("a line of the person's\n")
        late.close()
        return real(files)

    monkeypatch.setattr(steps, "find_writers", find)
    with reprieve.open(project) as ws:
        report = ws.undo()
    assert late.closed, "nobody was looked for"
    assert "a line of the person's\n" in (project / "README.md").read_text()
    assert [conflict.path for conflict in report.conflicts] == [b"README.md"] and not report.held_open


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("moment", ["until late writes are looked for", "until it is seen to be another file"])
def test_a_program_that_opened_what_was_put_there_and_taken_away_again_is_named(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """One program writes late into the replaced file, which goes back; a second one had opened the new one."""
    cli("run", "--", "sh", "-c", "echo theirs >> README.md")
    late = (project / "README.md").open("a")
    opened: list[TextIO] = []

    def meanwhile() -> None:
        late.write("a line of the first\n")
        late.close()
        opened.append((project / "README.md").open("a"))

    if moment == "until late writes are looked for":
        look = steps.Steps.return_late_writes

        def return_late_writes(self: steps.Steps, wanted: Any) -> None:
            meanwhile()
            look(self, wanted)

        monkeypatch.setattr(steps.Steps, "return_late_writes", return_late_writes)
    else:
        real = steps._came_out

        def came_out(*args: Any, **options: Any) -> bool:
            if not opened:
                meanwhile()
            return real(*args, **options)

        monkeypatch.setattr(steps, "_came_out", came_out)
        monkeypatch.setattr(steps.native, "move_many", lambda root, stage, calls: [-1] * len(calls))
    with reprieve.open(project) as ws:
        report = ws.undo()
    with opened[0] as second:
        second.write("a line of the second\n")
    assert "a line of the first\n" in (project / "README.md").read_text()
    assert [conflict.path for conflict in report.conflicts] == [b"README.md"]
    assert [gap.path for gap in report.held_open] == [b"README.md"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_program_that_writes_what_is_deleted_is_named_and_one_that_reads_is_not(cli: Cli, project: Path) -> None:
    cli("run", "--", "sh", "-c", "echo theirs >> README.md; echo theirs > note")
    with _logger(project / "note", "writes") as pid, _logger(project / "README.md", "reads"):
        result = cli("rollback", "--quiet")
    assert result.err.count("Warning") == 1 and f"(pid {pid})" in result.err and "'note'" in result.err


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_file_that_the_caller_has_open_is_not_said_to_be_held_by_us(cli: Cli, project: Path) -> None:
    """A shell with `exec 7>>FILE` gives its descriptor to every command."""
    cli("run", "--", "sh", "-c", "echo theirs >> README.md")
    with (project / "README.md").open("a") as file:
        command = [sys.executable, "-m", "reprieve", "rollback", "-q"]
        done = subprocess.run(
            command, cwd=project, pass_fds=[file.fileno()], capture_output=True, text=True, check=True
        )
    assert done.stderr.count("(pid ") == 1 and f"(pid {os.getpid()})" in done.stderr


def test_with_only_it_speaks_of_what_was_named(cli: Cli, project: Path) -> None:
    (project / "a").write_text("1")
    cli("checkpoint", "A")
    (project / "README.md").write_text("changed")
    said = cli("rollback", "A", "--only", "a").out
    assert "what was named is as it was" in said and "everything" not in said


def test_an_effect_without_inverse_is_not_promised_to_yes(cli: Cli) -> None:
    cli("checkpoint", "A")
    cli("record", "http", "--method", "POST", "--url", "https://example.invalid/charge")
    cli("record", "command", "--description", "can be undone", "--", "true")
    said = cli("rollback", "A", check=False).out
    lines = {word: line for line in said.splitlines() for word in ("charge", "can be undone") if word in line}
    assert "there is no inverse" in lines["charge"] and "--yes" not in lines["charge"]
    assert "--yes" in lines["can be undone"]
