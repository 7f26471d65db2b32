"""What people, agents and machines do in the stories: the command line's verbs, and processes of every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support import Cli, Result
from support.tree import Fingerprint, diff_fingerprints, fingerprint

LAUNCH = Path(__file__).with_name("launch.py")


# --- the command line -------------------------------------------------------------------------------------------


def checkpoint(cli: Cli, *args: str | bytes, **kwargs: Any) -> str:
    """Take a checkpoint; its id."""
    return str(cli("checkpoint", "--json", *args, **kwargs).json["checkpoint"]["id"])


def rollback(cli: Cli, *args: str | bytes, **kwargs: Any) -> Any:
    """Roll back; the report."""
    return cli("rollback", "--json", *args, **kwargs).json["report"]


def redo(cli: Cli, *args: str | bytes, **kwargs: Any) -> Any:
    """Take the last rollback back; the report."""
    return cli("redo", "--json", *args, **kwargs).json["report"]


def changes(cli: Cli, *args: str | bytes, **kwargs: Any) -> dict[str, str]:
    """What `status` says has changed: path → created, modified, deleted, mode, type."""
    answer = cli("status", "--json", *args, check=False, **kwargs)
    assert answer.code in (0, 1), answer
    return {change["path"]: change["change"] for change in answer.json["changes"]}


def differences(cli: Cli, *args: str | bytes, **kwargs: Any) -> dict[str, str]:
    """What `diff` says: path → created, modified, deleted, mode, type."""
    answer = cli("diff", "--json", *args, check=False, **kwargs)
    assert answer.code in (0, 1), answer
    return {change["path"]: change["change"] for change in answer.json["changes"]}


def paths(items: Iterable[Any]) -> set[str]:
    """The paths of a list in a report, whether it holds plain paths or objects that have one."""
    return {item if isinstance(item, str) else item["path"] for item in items}


def named(answer: Any) -> set[str]:
    """Every path that a report names with a verb or a reason."""
    return set().union(*(paths(answer[part]) for part in ("restored", "deleted", "kept", "conflicts", "not_undone")))


def assert_tree(root: Path, wanted: Fingerprint, *, ignore: Iterable[str] = (), skip: Iterable[bytes] = ()) -> None:
    """The tree is exactly `wanted`: bytes, modes, owners, times, links, xattrs, and nothing else is in it."""
    lines = diff_fingerprints(wanted, fingerprint(root, skip=skip), ignore=ignore)
    if lines:
        pytest.fail("\n".join(["the tree is not as it should be (wanted -> got):", *lines]))


# --- processes --------------------------------------------------------------------------------------------------


def command(*args: str | bytes, **circumstances: int) -> list[str | bytes]:
    """The argv of `reprieve ARGS…`, under other circumstances (support/launch.py) if any are given."""
    argv: list[str | bytes] = [sys.executable, "-m", "reprieve", *args]
    if circumstances:
        argv = [sys.executable, str(LAUNCH), json.dumps(circumstances), *argv]
    return argv


def reprieve(
    *args: str | bytes,
    cwd: Path | str | bytes,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = 120,
    **circumstances: int,
) -> Result:
    """Run `reprieve ARGS…` in cwd, powerless or limited as support/launch.py offers."""
    done = subprocess.run(
        command(*args, **circumstances),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    result = Result(
        done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape")
    )
    if check and result.code != 0:
        pytest.fail(f"reprieve {args!r} ended with {result.code}\n--- stdout\n{result.out}\n--- stderr\n{result.err}")
    return result


def powerless(project: Path) -> Cli:
    """`cli` as an ordinary user, for whom modes and owners count, even when the tests run as root."""

    def run(*args: str | bytes, cwd: Path | str | None = None, env: Any = None, **kwargs: Any) -> Result:
        kwargs.pop("input", None)
        return reprieve(*args, cwd=cwd or project, env=env, powerless=1, **kwargs)

    return run


class Spent(NamedTuple):
    """A run together with what it cost."""

    result: Result
    peak_bytes: int  # largest resident memory
    seconds: float


# A process of its own between us and what is measured: a child's peak begins with the memory of who starts it.
METER = """
import os, sys, time
begun = time.monotonic()
child = os.posix_spawn(sys.executable, sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, time.monotonic() - begun, file=sys.stderr)
"""


def measured(*args: str | bytes, cwd: Path | str) -> Spent:
    """Run `reprieve ARGS…` and take the kernel's word for its memory."""
    done = subprocess.run(
        [sys.executable, "-c", METER, *command(*args)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    *said, figures = done.stderr.splitlines()
    code, peak, seconds = figures.split()
    return Spent(Result(int(code), done.stdout, "\n".join(said)), int(peak), float(seconds))


def wait_until(claim: Callable[[], bool], *, what: str, seconds: float = 30) -> None:
    """Wait for a claim about another process to become true."""
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s for: {what}")
        time.sleep(0.002)


@contextmanager
def running(*argv: str | bytes | Path, **kwargs: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, for as long as the block lasts; it is killed at the end."""
    process = subprocess.Popen([*map(os.fspath, argv)], **kwargs)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def script(source: str, *args: str | bytes | Path, **kwargs: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of its own; it says "ready" on its stdout when it is under way, which is waited for."""
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    with running(sys.executable, "-c", source, *args, stdout=subprocess.PIPE, **kwargs) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def grep(root: Path, needle: bytes) -> list[Path]:
    """The files below root that hold these bytes, or have them in their name."""
    return [
        path
        for path in root.rglob("*")
        if needle in os.fsencode(path.name) or (path.is_file() and needle in path.read_bytes())
    ]


def size_of(root: Path) -> int:
    """Bytes on disk of everything below root."""
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


def git(*args: str, cwd: Path, check: bool = True) -> str:
    """Git as the user runs it, with an identity and nobody else's configuration."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *identity, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False, errors="replace"
    )
    if check and done.returncode != 0:
        pytest.fail(f"git {args!r} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def broken_by_an_agent(project: Path) -> None:
    """Edits, deletes, creates and a mode change, as agents do."""
    (project / "README.md").write_text("the agent's idea of a readme\n")
    (project / "src" / "util.py").unlink()
    (project / "src" / "new.py").write_text("created\n")
    (project / "tool.sh").chmod(0o644)
