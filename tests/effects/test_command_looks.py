"""A command is undone only if looks show it: as the agent left it before its inverse, as it was before after it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import Cli, Result
from support.aws import moto

Redis = Callable[..., str]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[Redis, tuple[str, ...]]]:
    """A real server: what runs a command on it, and how a line for it begins."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    socket = tmp_path / "s"
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    client = ("redis-cli", "-s", str(socket))

    def run(*words: str) -> str:
        return subprocess.run([*client, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.05)  # a real server starts
        yield run, client
    finally:
        server.terminate()
        server.wait(10)


def test_two_changes_of_one_key_are_undone_without_a_conflict(cli: Cli, redis: tuple[Redis, tuple[str, ...]]) -> None:
    """The plan looks at the older one in its turn, once the newer one is undone."""
    run, client = redis
    run("SET", "a", "0", "EX", "5000")
    cli("checkpoint", "base")
    for value in ("1", "2"):
        cli("run", "--", *client, "SET", "a", value)
    cli("run", "--", *client, "EXPIRE", "a", "100")
    result = cli("rollback", "base", "--yes")
    assert run("GET", "a") == "0" and int(run("TTL", "a")) > 4000 and "3 effects undone, 0 not" in result.out


def test_a_key_that_somebody_changed_since_is_a_conflict(cli: Cli, redis: tuple[Redis, tuple[str, ...]]) -> None:
    run, client = redis
    cli("checkpoint", "base")
    cli("run", "--", *client, "SET", "a", "1")
    run("SET", "a", "a person's")
    result = cli("rollback", "base", "--yes", check=False)
    assert result.code == 4 and "not as the agent left it" in result.err
    assert run("GET", "a") == "a person's"


def test_a_key_that_was_so_before_stays(cli: Cli, redis: tuple[Redis, tuple[str, ...]]) -> None:
    run, client = redis
    run("SET", "a", "1")
    cli("checkpoint", "base")
    cli("run", "--", *client, "SET", "a", "1")
    assert "nothing to undo" in cli("rollback", "base", "--dry-run").out
    cli("rollback", "base", "--yes")
    assert run("GET", "a") == "1"


# -- aws: the real program with a server that stands in for Amazon's


@pytest.mark.slow
def test_what_a_person_had_before_the_agent_repeated_the_command_stays(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket, a tag, a policy and a stopped machine: the agent's commands end with 0 and change nothing."""
    if shutil.which("aws") is None:
        pytest.skip("aws is not installed")
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    with moto(user) as amazon:
        arn, machine = amazon.populate()
        amazon.client("iam").attach_user_policy(UserName="ann", PolicyArn=arn)
        amazon.client("ec2").create_tags(Resources=[machine], Tags=[{"Key": "owner", "Value": "ann"}])
        amazon.client("ec2").stop_instances(InstanceIds=[machine])
        amazon.client("s3").create_bucket(Bucket="already")
        before = amazon.state()
        cli("checkpoint", "base")
        for words in (
            ("iam", "attach-user-policy", "--user-name", "ann", "--policy-arn", arn),
            ("ec2", "create-tags", "--resources", machine, "--tags", "Key=owner,Value=ann"),
            ("ec2", "stop-instances", "--instance-ids", machine),
            ("s3", "mb", "s3://already"),
        ):
            cli("run", "--", "aws", *words)
        assert cli("rollback", "base", "--dry-run").out.count("nothing to undo") == 4
        assert "0 effects undone, 0 not, 4 kept" in cli("rollback", "base", "--yes").out
        assert amazon.state() == before


# -- a program that can't be installed: a recorder stands in for it, with a rule of the user's

RULE = {
    "provider": "mine",
    "programs": {"lamp": {"account": {"none": "it is in this folder"}}},
    "commands": [
        {
            "id": "mine.lamp", "command": "lamp", "args": ["to"], "class": "restorable", "settle": "20s",
            "capture": {"was": {"run": ["lamp-state"], "when": "both", "absent": "no lamp"}},
            "inverse": [{"run": ["lamp-undo", "{was}"], "when": {"was": "present"}}],
        }
    ],
}  # fmt: skip


@pytest.fixture
def lamp(cli: Cli, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A lamp that is off, an agent that switches it on, and an undo that runs this script."""
    state, programs = tmp_path / "state", tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "mine.json").write_text(json.dumps(RULE))
    state.write_text("off\n")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    def program(name: str, script: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\nS='{state}'\n{script}\n")
        (programs / name).chmod(0o755)

    program("lamp", 'echo "$1" > "$S"')
    program("lamp-state", 'cat "$S"')

    def play(undo: str, *, look: str = 'cat "$S"', later: str = "") -> Result:
        program("lamp-undo", undo)
        cli("checkpoint", "base")
        cli("run", "--", "lamp", "on")
        program("lamp-state", look)
        if later:
            state.write_text(later)
        return cli("rollback", "base", "--yes", "--json", check=False)

    return play


def ended(result: Result) -> tuple[int, str]:
    return result.code, result.json["report"]["effects"][0]["state"]


def test_an_inverse_that_works_is_undone(lamp: Callable[..., Result]) -> None:
    assert ended(lamp('echo "$1" > "$S"')) == (0, "undone")


def test_an_inverse_that_ends_with_0_and_does_nothing_is_not_undone(lamp: Callable[..., Result]) -> None:
    result = lamp("exit 0")
    assert ended(result) == (6, "failed")
    assert 'says "on"' in result.json["report"]["effects"][0]["detail"]


def test_an_inverse_that_leads_elsewhere_is_not_undone(lamp: Callable[..., Result]) -> None:
    result = lamp("echo broken > $S")
    assert ended(result) == (6, "manual")
    assert 'says "broken"' in result.json["report"]["effects"][0]["detail"]


def test_an_inverse_that_fails_after_its_work_is_undone(lamp: Callable[..., Result]) -> None:
    assert ended(lamp('echo "$1" > "$S"; exit 1')) == (0, "undone")


def test_a_state_that_takes_its_time_is_waited_for(lamp: Callable[..., Result]) -> None:
    """The lamp fades: three looks after the inverse it is off."""
    fading = (
        'if grep -q fading "$S"; then echo x >> "$S"; fi; [ $(wc -l < "$S") -gt 3 ] && echo off > "$S"; head -n1 "$S"'
    )
    assert ended(lamp("echo fading > $S", look=fading)) == (0, "undone")


def test_a_look_that_fails_when_it_is_undone_leaves_it_alone(lamp: Callable[..., Result]) -> None:
    assert ended(lamp("echo never > $S", look="echo no power >&2; exit 1")) == (6, "failed")


def test_what_is_as_before_already_is_not_undone_twice(lamp: Callable[..., Result]) -> None:
    result = lamp("echo never > $S", later="off\n")
    assert ended(result) == (0, "undone") and "as before already" in result.json["report"]["effects"][0]["detail"]


def test_a_look_that_fails_before_means_no_inverse(cli: Cli, lamp: Callable[..., Result], tmp_path: Path) -> None:
    """Not the same as a look at nothing, which the rule knows by its words."""
    (tmp_path / "bin" / "lamp-state").write_text("#!/bin/sh\nexit 1\n")
    result = lamp("echo never")
    assert ended(result) == (6, "irreversible")
