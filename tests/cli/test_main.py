"""What holds for every command: JSON, exit codes, signals, pipes, help, the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.cli.catalog import NAMES
from support import Cli
from support.terminal import at_terminal


def test_version(cli: Cli) -> None:
    assert cli("--version").out == "reprieve 0.1.0\n"
    assert cli("--version", "--json").json["version"] == "0.1.0"


def test_help_lists_every_command(cli: Cli) -> None:
    for args in (("--help",), ("help",), ("-h",)):
        out = cli(*args).out
        assert all(f"\n  {name} " in out for name in NAMES)


def test_help_of_one_command_is_the_same_in_every_form(cli: Cli) -> None:
    one = cli("rollback", "--help").out
    assert one == cli("help", "rollback").out == cli("--help", "rollback").out
    assert "Examples:" in one and "--on-conflict" in one


def test_a_bare_call_before_anything_says_how_to_begin(cli: Cli) -> None:
    result = cli()
    assert "is not protected yet" in result.out
    assert "reprieve run -- COMMAND" in result.out


def test_a_bare_call_is_status_with_the_next_commands(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").write_text("x")
    out = cli().out
    assert "created   new" in out
    assert [word in out for word in ("reprieve diff", "reprieve rollback", "reprieve log")] == [True] * 3


def test_json_of_a_bare_call_is_that_of_status(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("--json").json["command"] == "status"


def test_an_unknown_command_in_json_is_one_object_with_exit_2(cli: Cli) -> None:
    result = cli("--json", "rolback", check=False)
    assert result.code == 2
    assert result.json == {
        "ok": False,
        "command": "rolback",
        "error": {
            "code": "usage",
            "message": "'rolback' is not a command",
            "hints": ["did you mean 'rollback'?", "reprieve --help lists them all"],
        },
    }
    assert result.err == ""


def test_an_unknown_option_is_exit_2_and_the_fact_first(cli: Cli) -> None:
    result = cli("status", "--sinse", "x", check=False)
    assert result.code == 2
    assert result.out == ""
    assert result.err.split("\n")[:2] == [
        "Error: there is no option '--sinse' for 'status'",
        "Hint: did you mean '--since'?",
    ]


def test_json_after_the_dashes_is_not_ours(cli: Cli) -> None:
    result = cli("revert", "--", "--json", check=False)
    assert result.code != 0
    assert result.out == ""
    assert result.err.startswith("Error: ")


@pytest.mark.parametrize("place", ["before", "after"])
def test_another_directory(cli: Cli, project: Path, tmp_path: Path, place: str) -> None:
    args = ("-C", str(project), "checkpoint") if place == "before" else ("checkpoint", "-C", str(project))
    cli(*args, cwd=tmp_path)
    assert len(cli("log", "--json").json["entries"]) == 1


def test_a_directory_that_is_not_there_is_exit_2(cli: Cli) -> None:
    result = cli("-C", "nowhere", "status", check=False)
    assert (result.code, result.err) == (2, "Error: there is no directory 'nowhere'\n")


def test_a_current_directory_that_was_deleted_is_said_plainly(cli: Cli, project: Path) -> None:
    gone = project / "gone"
    gone.mkdir()
    script = f"cd '{gone}' && rmdir '{gone}' && exec '{sys.executable}' -P -m reprieve status"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no longer exists" in done.stderr


def test_without_a_workspace_it_says_how_to_make_one(cli: Cli) -> None:
    result = cli("status", check=False)
    assert result.code == 3
    assert "reprieve init" in result.err


def test_a_wrong_setting_is_exit_3_with_the_nearest_name(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("exlude = []\n")
    result = cli("checkpoint", "--json", check=False)
    assert result.code == 3
    assert result.json["error"]["code"] == "config"
    assert "did you mean 'exclude'?" in result.json["error"]["hints"]


def test_quiet_leaves_the_answer_only(cli: Cli, project: Path) -> None:
    id = cli("checkpoint", "-q").out
    assert len(id.split()) == 1
    (project / "README.md").write_text("changed\n")
    assert cli("rollback", "-q").out == ""


def test_a_bug_is_exit_70_with_a_way_to_report_it(cli: Cli, tmp_path: Path) -> None:
    """Something that nobody foresaw: here, a file where a module should be importable."""
    broken = {"PYTHONPATH": f"{_broken(tmp_path)}{os.pathsep}{os.environ['PYTHONPATH']}"}
    result = cli("status", env=broken, check=False)
    assert result.code == 70
    assert "this is a bug in Reprieve: ZeroDivisionError" in result.err
    assert "reprieve doctor" in result.err
    assert "Traceback" not in result.err
    shown = cli("status", "--json", env={**broken, "REPRIEVE_DEBUG": "1"}, check=False)
    assert shown.code == 70
    assert shown.json["error"]["code"] == "bug"
    assert "Traceback" in shown.json["error"]["traceback"]
    assert "Traceback" in cli("status", env={**broken, "REPRIEVE_DEBUG": "1"}, check=False).err


def _broken(tmp_path: Path) -> Path:
    """A start-up file that breaks what `status` asks."""
    (tmp_path / "sitecustomize.py").write_text(
        "import reprieve.app.finding as w\ndef broken(*a, **k): 1 / 0\nw.open_workspace = broken\n"
    )
    return tmp_path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_unwinds_and_is_an_exit_code(
    cli: Cli, project: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """While waiting for another process that holds the workspace; JSON is one object then, too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "import reprieve.app.finding as w\n"
        "def wait(*a, **k):\n"
        "    try:\n"
        "        sys.stderr.write('waiting\\n'); sys.stderr.flush()\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        sys.stderr.write('unwound\\n')\n"
        "w.open_workspace = wait\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "status", "--json"],
        cwd=project,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert err == "unwound\n"


def test_a_reader_that_goes_away_is_no_error(cli: Cli, project: Path) -> None:
    for number in range(300):
        cli("checkpoint", f"number {number}", "-q") if number < 3 else None
        (project / f"file-{number}").write_text("line\n" * 50)
    script = f"'{sys.executable}' -m reprieve diff | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[1] == "0"
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["log"], ["--json", "log"], ["--json", "rollback"]])
def test_an_answer_that_cannot_be_written_is_said(cli: Cli, project: Path, words: list[str]) -> None:
    cli("checkpoint")
    with open("/dev/full", "wb") as full:
        argv = [sys.executable, "-m", "reprieve", *words]
        done = subprocess.run(argv, cwd=project, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 6
    assert b"could not be written" in done.stderr


def test_closed_standard_streams_are_survived(cli: Cli, project: Path) -> None:
    script = f"'{sys.executable}' -m reprieve checkpoint <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], cwd=project, check=False).returncode == 0
    assert len(cli("log", "--json").json["entries"]) == 1


def test_an_encoding_without_our_letters_is_survived(cli: Cli) -> None:
    result = cli("--help", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert "Usage: reprieve" in result.out


def test_a_module_that_an_agent_left_in_the_tree_is_not_run(cli: Cli, project: Path) -> None:
    for name in ("json", "reprieve_hook", "difflib", "tomllib", "subprocess"):
        (project / f"{name}.py").write_text("raise SystemExit('planted')\n")
    assert cli("checkpoint", "--json").json["ok"]
    assert cli("rolback", check=False).code == 2


def test_names_on_the_screen_are_harmless_and_exact_in_json(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / os.fsdecode(b"evil\x1b[2J\n\xff\xe2\x80\xae")).write_text("x")
    shown = cli("status").out
    assert "evil\\x1b[2J\\n\\xff\\u202e" in shown
    (change,) = cli("status", "--json").json["changes"]
    assert os.fsencode(change["path"]) == b"evil\x1b[2J\n\xff\xe2\x80\xae"
    assert "\\udcff" in cli("status", "--json").out


@pytest.mark.parametrize(
    "words",
    [
        ["show", b"caf\xe9"], ["rollback", b"caf\xe9"], ["diff", b"caf\xe9", "latest"],
        ["status", "--since", b"caf\xe9"], ["pin", b"caf\xe9"], ["name", b"caf\xe9", b"caf\xea"],
        ["effects", "--since", b"caf\xe9"],
        ["compensate", b"caf\xe9"], ["revert", "README.md", "--to", b"caf\xe9"],
        ["record", "http", "--method", "POST", "--url", b"http://h/caf\xe9", "--resource", b"caf\xe9"],
    ],
)  # fmt: skip
def test_bytes_that_are_not_utf_8_are_looked_up_like_any_other(cli: Cli, words: list[str | bytes]) -> None:
    cli("checkpoint", b"caf\xe9")
    cli("checkpoint")
    assert cli(*words).code == 0


@pytest.mark.parametrize("words", [["keep"], ["undo"], ["mail", "cancel"], ["approve"], ["thread", "show"], ["bisect"]])
def test_bytes_that_are_not_utf_8_and_name_nothing_are_exit_2(cli: Cli, words: list[str]) -> None:
    cli("checkpoint")
    cli("record", "command", "--description", "d", "--", "true")
    more = ["--", "true"] if words == ["bisect"] else []
    assert cli(*words, b"caf\xe9", *more, check=False).code == 2


def test_a_run_whose_label_is_not_utf_8_is_a_step_of_that_name(cli: Cli, project: Path) -> None:
    cli("run", "--label", b"caf\xe9", "--", "touch", "new")
    assert cli("rollback", b"step:caf\xe9", "--dry-run", "--json").json["plan"]["actions"]
    cli("undo", b"step:caf\xe9")
    assert not (project / "new").exists()


def test_colour_is_for_people_who_want_it(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").write_text("x")
    assert "\x1b[" in at_terminal("status", cwd=project)[1]
    assert "\x1b[" not in at_terminal("status", cwd=project, env={"NO_COLOR": "1"})[1]
    assert "\x1b[" not in at_terminal("status", cwd=project, env={"TERM": "dumb"})[1]
    assert "\x1b[" not in cli("status").out
    assert "\x1b[" in cli("status", env={"FORCE_COLOR": "1"}).out


def test_long_answers_go_through_the_pager_of_the_person(cli: Cli, project: Path) -> None:
    cli("checkpoint", "first")
    code, screen = at_terminal("log", cwd=project, env={"PAGER": "sed s/^/paged:/"})
    assert code == 0
    assert "paged:" in screen
    assert "paged:" not in cli("log", env={"PAGER": "sed s/^/paged:/"}).out


def test_a_pager_that_is_not_there_is_noted_and_done_without(cli: Cli, project: Path) -> None:
    cli("checkpoint", "first")
    code, screen = at_terminal("log", cwd=project, env={"PAGER": "no-such-pager"})
    assert code == 0
    assert "Note: the pager 'no-such-pager' could not be started" in screen
    assert '"first"' in screen


def test_the_script_and_the_module_are_the_same(cli: Cli, project: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "bin" / "reprieve"
    done = subprocess.run([sys.executable, str(script), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == cli("--version").out
