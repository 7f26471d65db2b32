"""`reprieve run`."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import Cli
from support.tree import fingerprint


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_passed_on(cli: Cli, code: int) -> None:
    assert cli("run", "--", "sh", "-c", f"exit {code}", check=False).code == code


def test_what_it_changed_can_be_taken_back(cli: Cli, project: Path) -> None:
    cli("run", "--label", "wreck", "--", "sh", "-c", "rm README.md; echo x > .env; echo y > new")
    assert [e["label"] for e in cli("log", "--json").json["entries"]] == ["wreck", "before wreck"]
    cli("rollback", "step:wreck")
    assert (project / "README.md").exists()
    assert (project / ".env").read_text() == "TOKEN=secret\n"
    assert not (project / "new").exists()


def test_it_starts_in_the_directory_that_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    """It, its check and a program by its path: what they write is in the tree that is protected."""
    (project / "tool").write_text('#!/bin/sh\npwd; echo "$PWD" > README.md\n')
    (project / "tool").chmod(0o755)
    words = ("run", "--check", "echo checked > checked", "--", "./tool")
    ran = cli("-C", "project", *words, cwd=tmp_path, env={"REPRIEVE_HOME": "home", "PWD": str(tmp_path)})
    assert ran.out == f"{project}\n"
    assert (project / "README.md").read_text() == f"{project}\n"
    assert (project / "checked").exists() and not (tmp_path / "checked").exists()
    cli("rollback")
    assert not (project / "checked").exists()


def test_what_it_calls_finds_the_same_store_there(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A store that the environment names from where the caller stands."""
    inner = (sys.executable, "-m", "reprieve", "checkpoint", "inner")
    cli("-C", "project", "run", "--", *inner, cwd=tmp_path, env={"REPRIEVE_HOME": "home"})
    assert "inner" in [entry["label"] for entry in cli("log", "--json").json["entries"]]


def test_a_plain_rollback_after_it_takes_it_back(cli: Cli, project: Path) -> None:
    cli("run", "--", "rm", "README.md")
    cli("rollback")
    assert (project / "README.md").exists()


def test_arguments_standard_streams_and_environment_are_untouched(cli: Cli) -> None:
    script = "import sys, os; print(sys.argv[1:], sys.stdin.read(), os.environ['MINE'])"
    words = ("--json", "-q", "*", "$HOME", "a b", "", "ü")
    result = cli("run", "--", sys.executable, "-c", script, *words, input="typed", env={"MINE": "yes"})
    assert result.out == f"{list(words)} typed yes\n"


def test_what_we_say_goes_to_standard_error(cli: Cli) -> None:
    result = cli("run", "--", "sh", "-c", "echo out; echo x > README.md")
    assert result.out == "out\n"
    assert "1 path changed" in result.err
    assert "reprieve rollback" in result.err
    assert cli("run", "-q", "--", "true").err == ""


def test_what_changed_before_a_checkpoint_inside_of_it_is_counted(cli: Cli, project: Path) -> None:
    """As with an agent whose hooks seal each call: the last checkpoint alone says that nothing changed."""
    script = f"echo x > new; echo y > README.md; {sys.executable} -m reprieve checkpoint inside -q"
    said = cli("run", "--", "sh", "-c", script).err
    assert "Reprieve: 2 paths changed" in said
    assert "undo them: reprieve rollback" in said
    again = script.replace("echo x", "echo z")
    assert cli("run", "--json", "--", "sh", "-c", again).json["changed"] == 1


def test_json_is_one_object_and_the_commands_output_goes_to_standard_error(cli: Cli) -> None:
    result = cli("run", "--json", "--", "sh", "-c", "echo out; exit 3", check=False)
    assert result.code == 3
    assert (result.json["exit_code"], result.json["ok"]) == (3, True)
    assert result.json["before"]["id"] != result.json["after"]["id"]
    assert "out\n" in result.err


def test_on_failure_rollback_takes_a_failed_commands_changes_back(cli: Cli, project: Path) -> None:
    result = cli("run", "--on-failure", "rollback", "--json", "--", "sh", "-c", "rm README.md; exit 3", check=False)
    assert result.code == 3
    assert result.json["report"]["restored"]
    assert (project / "README.md").exists()
    cli("redo")
    assert not (project / "README.md").exists()


@pytest.mark.parametrize("writes", ["echo new > README.md;", ""])
def test_on_failure_rollback_names_what_stands_outside_of_the_folder(cli: Cli, project: Path, writes: str) -> None:
    """Files are taken back at once; a charge is not, so nothing may sound as if it were, and the way is named."""
    (project.parent / "refund").write_text(f"#!/bin/sh\necho once >> {project.parent}/refunds\n")
    (project.parent / "refund").chmod(0o755)
    record = f"{sys.executable} -m reprieve record command --description charged -- {project.parent}/refund"
    args = ("run", "--on-failure", "rollback", "--", "sh", "-c", f"{record}; {writes} exit 3")
    said = cli(*args, check=False).err
    assert "1 effect outside of the folder not undone: charged" in said
    assert "its changes were" not in said and "nothing to take back" not in said
    answer = cli("--json", *args, check=False)
    assert [(e["description"], e["state"]) for e in answer.json["report"]["effects"]] == [("charged", "pending")]
    assert not (project.parent / "refunds").exists()
    for undo in (said.partition("folder, too: ")[2].split("\n")[0], answer.json["undo_effects"]):
        cli(*undo.split()[1:])
    assert (project.parent / "refunds").read_text() == "once\nonce\n"


def test_a_command_that_went_well_keeps_its_changes(cli: Cli, project: Path) -> None:
    cli("run", "--on-failure", "rollback", "--", "rm", "README.md")
    assert not (project / "README.md").exists()


def test_a_check_decides_too(cli: Cli, project: Path) -> None:
    args = ("--check", "test -e README.md", "--on-failure", "rollback")
    assert cli("run", *args, "--", "rm", "README.md", check=False).code == 1
    assert (project / "README.md").exists()
    assert cli("run", *args, "--", "rm", "data.bin").code == 0
    assert not (project / "data.bin").exists()


def test_a_red_check_names_the_step_and_how_to_undo_it(cli: Cli, project: Path) -> None:
    args = ("run", "--label", "tidy up", "--check", "test -e README.md")
    result = cli(*args, "--", "rm", "README.md", check=False)
    assert result.code == 1
    assert "the check is red after step 'tidy up' (exit code 1)" in result.err
    undo = result.err.partition("take that step back: ")[2].split("\n")[0]
    assert undo.startswith("reprieve undo ")
    cli(*undo.split()[1:])
    assert (project / "README.md").exists()
    answer = cli(*args, "--json", "--", "rm", "README.md", check=False).json
    assert answer["check"]["red"] is True
    assert answer["check"]["step"] == answer["after"]["id"]
    assert cli("run", "--json", "--check", "true", "--", "true").json["check"]["red"] is False


def test_a_red_check_with_rollback_says_what_was_taken_back(cli: Cli, project: Path) -> None:
    args = ("run", "--label", "tidy up", "--check", "test -e README.md", "--on-failure", "rollback", "--")
    said = cli(*args, "rm", "README.md", check=False).err
    assert "step 'tidy up'" in said and "that step was taken back" in said and "reprieve redo" in said
    (project / "README.md").unlink()
    said = cli(*args, "true", check=False).err
    assert "there was nothing to take back" in said
    assert "was taken back" not in said


def test_a_command_that_is_not_there_is_127(cli: Cli, project: Path) -> None:
    assert cli("run", "--", "no-such-command-anywhere", check=False).code == 127
    assert cli("run", "--", "./README.md", check=False).code == 126


def test_without_a_command_it_is_exit_2(cli: Cli) -> None:
    assert cli("run", check=False).code == 2
    assert cli("run", "--", check=False).code == 2


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_reaches_the_command_and_the_run_is_sealed(
    cli: Cli, project: Path, number: signal.Signals, is_alone: bool
) -> None:
    """Sent to us alone, as supervisors do, or to the whole group."""
    script = "trap 'echo caught > caught; exit 9' TERM INT QUIT; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "run", "--", "sh", "-c", script],
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if is_alone:
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 9
    assert (project / "caught").exists()
    assert len(cli("log", "--json").json["entries"]) == 2


def test_a_command_that_deletes_the_whole_folder_can_be_taken_back(cli: Cli, project: Path) -> None:
    before = fingerprint(project)
    wrecked = cli("run", "--json", "--", "rm", "-rf", str(project), check=False)
    assert wrecked.code == 10 and not project.exists()
    error = wrecked.json["error"]
    assert "was deleted" in error["message"] and "reprieve rollback" in error["hints"][0]
    project.mkdir()
    cli("rollback")
    assert fingerprint(project) == before


def test_ctrl_c_at_a_terminal_reaches_the_command_once(cli: Cli, project: Path) -> None:
    """From the terminal; a second one from us would be a second Ctrl-C, by which agents end at once."""
    script = (
        "import signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print('seen', len(seen), flush=True)\n"
    )
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(project)
        os.execv(sys.executable, [sys.executable, "-m", "reprieve", "run", "--", sys.executable, "-c", script])
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while b"after it" not in said:
        said += os.read(terminal, 4096)
    assert b"seen 1" in said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_a_command_killed_by_a_signal_is_128_and_more(cli: Cli) -> None:
    assert cli("run", "--", "sh", "-c", "kill -KILL $$", check=False).code == 137


def test_a_child_left_behind_does_not_hang_it(cli: Cli, project: Path) -> None:
    began = time.monotonic()
    script = "(sleep 9; echo late > late) >/dev/null 2>&1 </dev/null & echo now > now"
    cli("run", "--", "sh", "-c", script)
    assert time.monotonic() - began < 8.9
    while not (project / "late").exists():
        time.sleep(0.05)
    assert "late" in json.dumps(cli("status", "--json").json["changes"])


def test_on_failure_rollback_names_what_goes_on_running(cli: Cli, project: Path) -> None:
    """It may write again what was taken back a moment ago."""
    for how in ((), ("--json",)):
        script = "sleep 100 >/dev/null 2>&1 </dev/null & echo $! > ../pid; echo x > README.md; exit 3"
        ran = cli("run", *how, "--on-failure", "rollback", "--", "sh", "-c", script, check=False)
        pid = int((project.parent / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        assert ran.code == 3
        if how:
            assert ran.json["still_running"] == [{"pid": pid, "command": "sleep"}]
        else:
            assert f"still running, and may write again what was taken back: sleep (pid {pid})" in ran.err
    ended = cli(
        "run", "--json", "--on-failure", "rollback", "--", "sh", "-c", "echo x > README.md; exit 3", check=False
    )
    assert ended.json["still_running"] == []


def test_on_failure_rollback_leaves_what_another_run_did_meanwhile(cli: Cli, project: Path) -> None:
    """Nobody can tell whose it is, so nothing is taken back; said, and the exit code is the command's."""
    script = "echo mine > README.md; touch ../ready; until [ -e ../go ]; do sleep 0.02; done; exit 3"
    words = [sys.executable, "-m", "reprieve", "run", "--json", "--on-failure", "rollback", "--", "sh", "-c", script]
    failing = subprocess.Popen(words, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    while not (project.parent / "ready").exists():
        time.sleep(0.02)
    cli("run", "--", "sh", "-c", "echo theirs > theirs")
    (project.parent / "go").touch()
    answer = json.loads(failing.communicate(timeout=60)[0])
    assert failing.returncode == answer["exit_code"] == 3
    assert (project / "theirs").read_text() == "theirs\n"
    assert answer["report"] is None
    assert "not the step's alone" in answer["not_taken_back"]
    cli("undo", answer["after"]["id"], "--on-conflict", "keep")
    assert (project / "theirs").read_text() == "theirs\n"


def test_on_failure_rollback_waits_for_no_other_run(cli: Cli, project: Path) -> None:
    """One that is under way keeps it from happening; that is said, and how to make up for it."""
    script = "touch ../ready; until [ -e ../go ]; do sleep 0.02; done"
    words = [sys.executable, "-m", "reprieve", "run", "--label", "long", "--", "sh", "-c", script]
    long = subprocess.Popen(words, cwd=project, stdin=subprocess.DEVNULL)
    while not (project.parent / "ready").exists():
        time.sleep(0.02)
    ran = cli("run", "--on-failure", "rollback", "--", "sh", "-c", "echo mine > mine; exit 3", check=False)
    (project.parent / "go").touch()
    assert long.wait(timeout=60) == 0
    assert ran.code == 3
    assert "its changes were not taken back: 'reprieve run' of 'long' is still active here" in ran.err


@pytest.mark.parametrize("inner", ["exit 4", "reprieve run -- touch deep; exit 4"])
def test_on_failure_rollback_takes_what_the_run_started_along(cli: Cli, project: Path, inner: str) -> None:
    """Who runs it is not taken for somebody else, and neither is what it runs."""
    before = fingerprint(project)
    me = f"{sys.executable} -m reprieve"
    inner = inner.replace("reprieve", me)
    script = f"{me} run --on-failure rollback --label in -- sh -c 'echo x > new; {inner}'"
    assert cli("run", "--", "sh", "-c", script, check=False).code == 4
    assert fingerprint(project) == before


def test_a_run_that_was_cut_off_is_a_step_that_can_be_undone(cli: Cli, project: Path) -> None:
    before = fingerprint(project)
    script = "echo x > README.md; echo $$ > ../pid; sleep 100"
    words = [sys.executable, "-m", "reprieve", "run", "--label", "job", "--", "sh", "-c", script]
    process = subprocess.Popen(words, cwd=project, stdin=subprocess.DEVNULL)
    while not (project.parent / "pid").exists() or not (project.parent / "pid").read_text():
        time.sleep(0.02)
    process.kill()
    process.wait()
    os.kill(int((project.parent / "pid").read_text()), signal.SIGKILL)
    (project / "mine").write_text("after it was killed")
    answer = cli("undo", "--yes", check=False)
    assert answer.code == 4
    assert "'job' was cut off" in answer.err and "reprieve undo step:job" in answer.err
    assert (project / "README.md").read_text() == "x\n"
    (project / "mine").unlink()
    cli("undo", "step:job", "--yes")
    assert fingerprint(project) == before
    assert "there is no step to undo" in cli("undo", "--yes", check=False).err


def test_a_run_inside_a_run_works(cli: Cli) -> None:
    cli("run", "--", sys.executable, "-m", "reprieve", "checkpoint", "inside")
    assert "inside" in [entry["label"] for entry in cli("log", "--json").json["entries"]]


LEAVE = (
    "import socket, sys\n"
    "try:\n"
    "    socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5).close()\n"
    "except OSError as e:\n"
    "    sys.exit(f'shut out: {e}')\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_bad_case_28_nothing_leaves_whatever_client_it_uses(cli: Cli, project: Path) -> None:
    """A raw socket, an interpreter that ignores its environment, curl past every proxy: all are shut out."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        clients = (
            (sys.executable, "-c", LEAVE, port),
            (sys.executable, "-I", "-c", LEAVE, port),
            ("curl", "-sS", "--noproxy", "*", "-m", "5", f"http://127.0.0.1:{port}/"),
        )
        for client in clients:
            assert cli("run", "--isolate", "net", "--", *client, check=False).code not in (0, 125), client
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()
        assert cli("run", "--", *clients[0]).code == 0  # the same without: it gets through
        server.accept()[0].close()
    result = cli("run", "--isolate", "net", "--", "sh", "-c", "touch made; exit 7", check=False)
    assert result.code == 7 and (project / "made").exists()


def test_an_empty_command_is_usage_and_leaves_nothing_on_the_timeline(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    before = len(cli("log", "--json").json["entries"])
    assert cli("run", "--", "", check=False).code == 2
    assert len(cli("log", "--json").json["entries"]) == before
