"""The resident helper: what it answers is what Python would have done, and its absence changes nothing but speed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.cli.helper import preload
from reprieve.cli.helper.place import running
from support import SRC
from support.helper import Installed, is_gone, until, wait_for_helper

PAYLOAD = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "c1"}


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    yield one
    one.close()


def hook(event: str, cwd: Path, **fields: object) -> bytes:
    return json.dumps({**PAYLOAD, "cwd": str(cwd), "hook_event_name": event, **fields}).encode()


def lock_of(home: Path) -> Path:
    """The lock of the one workspace."""
    return next(p for p in (home / "locks").iterdir() if p.name not in ("gc", "helper") and "." not in p.name)


# What it does


def test_it_is_started_by_the_first_command_and_answers_the_second(installed: Installed, project: Path) -> None:
    installed.warm(project)
    assert installed.directs == 1
    done = installed.run("status", "--json", cwd=project)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"]
    assert installed.directs == 1


def test_a_command_that_fails_starts_none(installed: Installed, project: Path) -> None:
    assert installed.run("status", cwd=project).returncode == 3
    assert not running(str(installed.home)) and not (installed.home / "locks" / "helper").exists()


@pytest.mark.parametrize("off", ["off", "0", "false", "no", "nonsense"])
def test_it_is_not_asked_and_not_started_when_it_is_switched_off(installed: Installed, project: Path, off: str) -> None:
    done = installed.run("checkpoint", cwd=project, env={"REPRIEVE_HELPER": off})
    assert done.returncode == (3 if off == "nonsense" else 0)
    assert not wait_for_helper(installed.home)


def test_the_setting_switches_it_off_and_ends_the_one_that_runs(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    Path(installed.env["REPRIEVE_CONFIG"]).write_text("helper = false\n")
    assert installed.run("status", cwd=project).returncode == 0
    assert installed.directs == 2
    until(lambda: is_gone(pid))
    assert installed.run("status", cwd=project).returncode == 0
    assert not wait_for_helper(installed.home)


@pytest.mark.parametrize(
    "words", [("-C", ".", "status"), ("doctor",), ("run", "--", "true"), ("config",), ("--version",), ("help",)]
)
def test_everything_else_is_done_by_python_itself(installed: Installed, project: Path, words: tuple[str, ...]) -> None:
    installed.warm(project)
    installed.run(*words, cwd=project)
    assert installed.directs == 2


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "REPRIEVE_NATIVE", "GLIBC_TUNABLES"])
def test_what_changes_python_itself_is_left_to_python(installed: Installed, project: Path, name: str) -> None:
    installed.warm(project)
    installed.run("status", cwd=project, env={name: "0"})
    assert installed.directs == 2


@pytest.mark.parametrize("words", [("--json", "status"), ("-q", "--json", "checkpoint"), ("-q", "log")])
def test_json_and_q_may_stand_before_the_command(installed: Installed, project: Path, words: tuple[str, ...]) -> None:
    installed.warm(project)
    done = installed.run(*words, cwd=project)
    assert (done.returncode, done.stderr, installed.directs) == (0, b"", 1)
    assert done.stdout.startswith(b"{") == ("--json" in words)


def test_what_images_with_python_set_does_not_keep_it_away(installed: Installed, project: Path) -> None:
    """Many containers set these two, so their agents would never have had a helper."""
    installed.warm(project)
    plain = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    (project / "new").write_text("x")
    done = installed.run("status", cwd=project, env=plain)
    assert b"new" in done.stdout and done.returncode == 0
    wrong = installed.run("rollback", "nowhere", cwd=project, env=plain)
    assert wrong.returncode != 0 and b"nowhere" in wrong.stderr
    assert installed.directs == 1


def test_the_name_in_messages_and_in_hooks_is_the_one_that_was_called(installed: Installed, project: Path) -> None:
    link = installed.home.parent / "elsewhere" / "reprieve"
    link.parent.mkdir()
    link.symlink_to(installed.bin / "reprieve")
    environ = {**installed.env, "REPRIEVE_HELPER": "off"}
    words = [link, "protect", "claude-code", "--dry-run", "--json"]
    done = subprocess.run(words, env=environ, cwd=project, capture_output=True, input=b"", check=False)
    assert str(link).encode() in done.stdout, done
    helped = installed.run("status", "--help", cwd=project)
    assert b"reprieve status" in helped.stdout and b"reprieve-python" not in helped.stdout


def test_doctor_says_that_it_runs_and_how_to_switch_it_off(installed: Installed, project: Path) -> None:
    assert b"helper: none runs" in installed.run("doctor", cwd=project).stdout
    pid = installed.warm(project)
    text = installed.run("doctor", cwd=project).stdout.decode()
    assert f"helper: runs (pid {pid}), off with: reprieve config set helper off" in text
    os.kill(pid, signal.SIGTERM)
    until(lambda: is_gone(pid))
    assert b"helper: switched off" in installed.run("doctor", cwd=project, env={"REPRIEVE_HELPER": "off"}).stdout


def test_no_module_of_ours_is_left_to_load(tmp_path: Path, project: Path) -> None:
    """What a served command loads is loaded already, so that a fork has nothing to read from disk."""
    environ = {"HOME": str(tmp_path), "REPRIEVE_HOME": str(tmp_path / "h"), "PATH": os.environ["PATH"]}
    script = (
        "import os, sys\nsys.path.insert(0, sys.argv.pop(1))\nreal = os._exit\n"
        "def end(code):\n    sys.stderr.write('LOADED ' + ' '.join(sys.modules)); sys.stderr.flush(); real(code)\n"
        "os._exit = end\nfrom reprieve.cli.entry import run\nrun()"
    )

    def loaded(*words: str, data: bytes = b"", code: str = script) -> set[str]:
        argv = [sys.executable, "-c", code, str(SRC), *words]
        done = subprocess.run(argv, cwd=project, env=environ, input=data, capture_output=True, check=False)
        return set(done.stderr.decode().rpartition("LOADED ")[2].split())

    there = loaded(
        code="import sys\nsys.path.insert(0, sys.argv[1])\nfrom reprieve.cli.helper import preload, server\n"
        "preload.load()\n"
        "sys.stderr.write('LOADED ' + ' '.join(sys.modules))"
    )
    assert "reprieve.cli.hooking" in there
    needed = loaded("checkpoint", "--json")
    needed |= loaded("hook", "claude-code", "UserPromptSubmit", data=hook("UserPromptSubmit", project, prompt="go"))
    needed |= loaded("hook", "codex", "PreToolUse", data=hook("PreToolUse", project))
    (project / "README.md").write_text("changed\n")
    needed |= loaded("hook", "codex", "PostToolUse", data=hook("PostToolUse", project))
    for words in (
        ("status",), ("diff",), ("diff", "--stat"), ("log", "--json"), ("show", "latest"), ("undo", "call:c1"),
        ("redo",), ("rollback", "~1"), ("redo", "--json"), ("revert", "README.md"), ("rollback", "nosuch"),
    ):  # fmt: skip
        needed |= loaded(*words)
    # so much that threads pay
    for content in (b"old", b"new"):
        for number in range(12):
            (project / f"large{number}").write_bytes(b"%s %d" % (content, number) * 6000)
        needed |= loaded("checkpoint")
    needed |= loaded("rollback", "~1")
    assert "_queue" in needed
    only_without_helper = {"reprieve.app.alone", "reprieve.cli.hot"}
    assert " ".join(sorted(needed - there - only_without_helper)) == ""


def test_the_commands_are_the_same_in_both_languages() -> None:
    text = (SRC / "reprieve" / "cli" / "helper" / "launcher.c").read_text()
    listed = text.split("served[] = {")[1].split("NULL")[0]
    assert tuple(re.findall(r'"(\w+)"', listed)) == preload.SERVED


# The same outcome


def outcomes(one: Installed, project: Path, *, env: dict[str, str]) -> list[tuple[object, ...]]:
    """A story of good and bad commands; what each gave, without what differs from run to run."""
    seen: list[tuple[object, ...]] = []

    def shown(data: bytes) -> str:
        text = data.decode("utf-8", "surrogateescape").replace(str(project.parent), "HERE")
        text = re.sub(r"\b[a-z0-9]{10}\b", "ID", text)
        text = re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)
        text = re.sub(r"\d\d\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)
        return re.sub(r"\d+ seconds? ago|just now", "THEN", text)

    def do(*words: str | bytes, data: bytes = b"", **options: object) -> None:
        done = one.run(*words, cwd=project, input=data, **{**options, "env": {**env, **options.get("env", {})}})  # type: ignore[dict-item]
        seen.append((words, done.returncode, shown(done.stdout), shown(done.stderr)))

    do("status")
    do("checkpoint", "first")
    wait_for_helper(one.home)
    do("checkpoint", "--json")
    (project / "README.md").write_text("changed\n")
    (project / "sub").mkdir()
    (project / os.fsdecode(b"n\xe4me")).write_text("not UTF-8\n")
    for words in (("status",), ("status", "--json"), ("diff",), ("diff", "--json"), ("diff", "--stat"), ("log",)):
        do(*words)
    do("diff", env={"FORCE_COLOR": "1"})
    do("log", env={"TZ": "Asia/Kathmandu"})
    do("status", "--no-such-option")
    do("status", "-C", "nowhere")
    do("rollback", "nosuch", "--json")
    do("show", b"n\xe4me")
    do("revert", b"n\xe4me", env={"ODD": os.fsdecode(b"\xff\xfe")})
    do("rollback", "first")
    do("redo")
    do("hook", "claude-code", "UserPromptSubmit", data=hook("UserPromptSubmit", project, prompt="go"))
    do("hook", "claude-code", "PreToolUse", data=hook("PreToolUse", project))
    (project / "README.md").write_text("by the agent\n")
    do("hook", "claude-code", "PostToolUse", data=hook("PostToolUse", project))
    (project / "README.md").write_text("by a person, all of it\n")
    do("rollback", "call:c1")
    do("rollback", "call:c1", "--json")
    do("undo", "call:c1", "--on-conflict", "theirs")
    do("hook", "claude-code", "PreToolUse", data=b"no JSON at all")
    do("hook")
    do("hook", "claude-code", "PreToolUse", data=hook("PreToolUse", project, filler="x" * 3_000_000))
    do("status", env={"REPRIEVE_HOOK_BUDGET_S": "many"})
    do("status", env={"REPRIEVE_DEBUG": "1"})
    return seen


def test_a_story_ends_the_same_either_way(installed: Installed, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "again" / "project"
    other.parent.mkdir()
    shutil.copytree(project, other, symlinks=True)
    direct = Installed(tmp_path / "again" / "installed")
    by_python = outcomes(direct, other, env={"REPRIEVE_HELPER": "off"})
    by_helper = outcomes(installed, project, env={})
    assert direct.directs == len(by_python)
    # before there was one; and a setting that Python has to complain about
    assert installed.directs == 3
    for one, two in zip(by_python, by_helper, strict=True):
        assert one == two
    assert {code for _, code, _, _ in by_python} >= {0, 2, 3, 4}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_umask_is_the_callers(installed: Installed, project: Path, umask: int) -> None:
    installed.warm(project)
    shutil.rmtree(project / "src")
    done = installed.run("rollback", cwd=project, umask=umask)
    assert done.returncode == 0 and installed.directs == 1
    assert (project / "src" / "main.py").stat().st_mode & 0o777 == 0o644


def test_a_deleted_current_directory_is_told_alike(installed: Installed, project: Path) -> None:
    installed.warm(project)
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {installed.bin}/reprieve status"
    first, second = (
        subprocess.run(
            ["sh", "-c", script], cwd=project, env={**installed.env, **env}, capture_output=True, check=False
        )
        for env in ({}, {"REPRIEVE_HELPER": "off"})
    )
    assert first.returncode == second.returncode == 3
    assert first.stderr == second.stderr and b"no longer exists" in first.stderr
    assert installed.directs == 2


@pytest.mark.parametrize("fd", [0, 1, 2])
def test_a_closed_stream_is_pythons_business(installed: Installed, project: Path, fd: int) -> None:
    installed.warm(project)
    script = f"exec {fd}<&-; exec {installed.bin}/reprieve status"
    done = subprocess.run(["sh", "-c", script], cwd=project, env=installed.env, capture_output=True, check=False)
    assert done.returncode == 0 and installed.directs == 2


@pytest.mark.parametrize("words", [("status",), ("log", "--json")])
def test_an_answer_that_cannot_be_written_is_an_error_alike(
    installed: Installed, project: Path, words: tuple[str, ...]
) -> None:
    installed.warm(project)
    with open("/dev/full", "wb") as full:
        first, second = (
            installed.run(*words, cwd=project, stdout=full, stderr=subprocess.PIPE, env=env)
            for env in ({}, {"REPRIEVE_HELPER": "off"})
        )
    assert first.returncode == second.returncode == 6
    assert first.stderr == second.stderr
    assert installed.directs == 2


def test_a_reader_that_went_away_is_no_error(installed: Installed, project: Path) -> None:
    installed.warm(project)
    read, write = os.pipe()
    os.close(read)
    done = installed.run("log", cwd=project, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"") and installed.directs == 1


def test_a_limit_of_file_size_holds(installed: Installed, project: Path) -> None:
    installed.warm(project)
    (project / "large").write_bytes(os.urandom(2 << 20))
    launch = [sys.executable, str(Path(__file__).parents[1] / "support" / "launch.py"), json.dumps({"bytes": 1 << 20})]
    first, second = (
        installed.run("checkpoint", cwd=project, before=launch, env=env) for env in ({}, {"REPRIEVE_HELPER": "off"})
    )
    assert first.returncode == second.returncode == 10
    assert first.stderr.split(b"(")[0] == second.stderr.split(b"(")[0]
    assert installed.directs == 2


def test_a_limit_of_memory_is_left_to_python(installed: Installed, project: Path) -> None:
    installed.warm(project)
    launch = [sys.executable, str(Path(__file__).parents[1] / "support" / "launch.py"), json.dumps({"memory": 4 << 30})]
    assert installed.run("status", cwd=project, before=launch).returncode == 0
    assert installed.directs == 2


def test_output_goes_on_where_the_file_is(installed: Installed, project: Path) -> None:
    installed.warm(project)
    target = project.parent / "out"
    target.write_text("before\n")
    with target.open("ab") as file:
        installed.run("status", cwd=project, stdout=file, stderr=subprocess.STDOUT)
    assert target.read_text().startswith("before\nSince ") and installed.directs == 1


# Signals and deaths


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_caller_stops_the_command(
    installed: Installed, project: Path, number: signal.Signals, code: int
) -> None:
    pid = installed.warm(project)
    with lock_of(installed.home).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = installed.begin("checkpoint", cwd=project)
        installed.child(pid, project)
        time.sleep(0.2)  # until it waits for the lock; before that the signal would end it even earlier
        command.send_signal(number)
        _, err = command.communicate(timeout=20)
    assert command.returncode == code, err
    assert b"finished or undone by the next command" in err and installed.directs == 1
    until(lambda: not installed.children(pid))


def test_a_signal_that_the_caller_ignores_is_ignored(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    with lock_of(installed.home).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = f"trap '' HUP; exec {installed.bin}/reprieve checkpoint"
        command = subprocess.Popen(["sh", "-c", script], cwd=project, env=installed.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        child = installed.child(pid, project)
        until(lambda: int(status_of(child)["SigIgn"], 16) & 1)
        command.send_signal(signal.SIGHUP)
        os.kill(child, signal.SIGHUP)
        time.sleep(0.2)
        assert command.poll() is None
    assert command.communicate(timeout=20)[1] == b"" and command.returncode == 0
    assert installed.directs == 1


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_caller_that_is_killed_takes_its_command_along(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    with lock_of(installed.home).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = installed.begin("checkpoint", cwd=project)
        installed.child(pid, project)
        time.sleep(0.2)
        command.kill()
        command.communicate(timeout=20)
        until(lambda: not installed.children(pid))
    assert installed.run("checkpoint", cwd=project).returncode == 0 and installed.directs == 1


def test_a_command_that_is_woken_for_nothing_goes_on(installed: Installed, project: Path) -> None:
    """As by the caller's "go", if that comes to waking it only when it has been read."""
    pid = installed.warm(project)
    with lock_of(installed.home).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = installed.begin("checkpoint", cwd=project)
        child = installed.child(pid, project)
        time.sleep(0.2)
        os.kill(child, signal.SIGIO)
        time.sleep(0.2)
        assert command.poll() is None
    assert command.communicate(timeout=20)[1] == b"" and command.returncode == 0
    assert installed.directs == 1


def test_a_command_goes_on_when_the_helper_is_killed(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    command = installed.begin("-q", "hook", "claude-code", "PreToolUse", cwd=project)
    installed.child(pid, project)
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid))
    out, err = command.communicate(hook("PreToolUse", project), timeout=20)
    assert (command.returncode, out, err) == (0, b"", b"") and installed.directs == 1
    assert b"Bash" in installed.run("log", cwd=project).stdout  # its checkpoint is there
    assert installed.directs == 2
    assert wait_for_helper(installed.home) not in (0, pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_command_that_dies_is_seen_to_die(installed: Installed, project: Path, number: signal.Signals) -> None:
    pid = installed.warm(project)
    command = installed.begin("-q", "hook", "claude-code", "PreToolUse", cwd=project)
    child = installed.child(pid, project)
    time.sleep(0.2)
    os.kill(child, number)
    command.communicate(timeout=20)
    assert command.returncode == -number


def test_when_both_die_the_caller_says_what_to_do(installed: Installed, project: Path) -> None:
    pid = installed.warm(project)
    command = installed.begin("-q", "hook", "claude-code", "PreToolUse", cwd=project)
    child = installed.child(pid, project)
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    _, err = command.communicate(timeout=20)
    assert command.returncode == 70
    assert err.startswith(b"Error: the command ended unexpectedly\nHint: what was begun is finished or undone")


def test_a_helper_that_does_not_answer_is_not_waited_for(installed: Installed, project: Path) -> None:
    """And what it finds in its queue when it goes on again is not done a second time."""
    pid = installed.warm(project)
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    done = installed.run("checkpoint", "once", cwd=project)
    took = time.monotonic() - started
    os.kill(pid, signal.SIGCONT)
    assert done.returncode == 0 and 0.9 < took < 20
    assert installed.directs == 2
    until(lambda: not installed.children(pid))
    time.sleep(0.3)
    assert installed.run("log", cwd=project).stdout.count(b"once") == 1


def test_the_agent_that_called_is_still_found(installed: Installed, project: Path) -> None:
    """A call's window belongs to the process that is above the caller, not above the helper."""
    installed.warm(project)
    time.sleep(0.6)  # a patron is older than half a second
    for number, env in enumerate(({}, {"REPRIEVE_HELPER": "off"})):
        data = hook("PreToolUse", project, tool_use_id=f"call{number}")
        assert installed.run("hook", "claude-code", "PreToolUse", cwd=project, input=data, env=env).returncode == 0
    assert installed.directs == 2
    script = (
        "import sys\nfrom reprieve.app.finding import open_workspace\nws = open_workspace(sys.argv[1])\n"
        "print(*[w.pid for w in ws.capture.author()[1].open])"
    )
    argv = [installed.bin / "python", "-c", script, project]
    found = subprocess.run(argv, env=installed.env, capture_output=True, text=True, check=True).stdout
    assert found.split() == [str(os.getpid())] * 2
