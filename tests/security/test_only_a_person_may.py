"""Commands that only a person may run: refused below an agent's call or run, however the agent starts them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import Cli
from support.agentwork import agent_in_a_call, run_under_way
from support.claude import Claude
from support.terminal import at_terminal

REPRIEVE = (sys.executable, "-m", "reprieve")
# words of the command line, and the exit code for a person
COMMANDS = {
    "forget": (("forget", "person.txt", "--yes"), 0),
    "compensate": (("compensate", "base", "--execute", "--yes"), 0),
    "keep": (("keep",), 0),
    "pin --remove": (("pin", "mine", "--remove"), 0),
    "name ''": (("name", "mine", ""), 0),
    "name a label": (("name", "base", "theirs"), 0),
    "name as another is": (("name", "latest", "later"), 0),
    "prune": (("prune", "--keep-last", "1", "--keep-days", "0", "--yes"), 0),
    "thread delete": (("thread", "delete", "t", "--yes"), 2),  # there is none
    "thread prune": (("thread", "prune", "t", "--yes"), 2),
    "track --remove": (("track", "--remove", "../tracked"), 0),
    "unprotect": (("unprotect", "--yes"), 0),
    "config set": (("config", "set", "exclude", "*.iso"), 0),
    "config unset": (("config", "unset", "exclude"), 0),
    "mcp uninstall": (("mcp", "uninstall", "--yes"), 0),
}


@pytest.fixture
def world(cli: Cli, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with something that each of these commands could destroy, and Claude Code protected."""
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    (user / ".claude" / "settings.json").write_text("{}\n")
    monkeypatch.setenv("HOME", str(user))
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tracked").write_text("tracked\n")
    cli("protect", "claude-code", "--yes")
    cli("track", "../tracked")
    cli("checkpoint", "base")
    cli("record", "command", "--description", "a machine", "--", "touch", str(tmp_path / "undone"))
    (project / "person.txt").write_text("precious\n")
    cli("checkpoint", "mine", "--pin")
    cli("checkpoint", "later")
    return project


def by_someone(cli: Cli, words: tuple[str, ...]) -> tuple[int, str]:
    """A script without a terminal, while no agent is at work."""
    result = cli(*words, check=False)
    return result.code, result.err


def in_a_run(cli: Cli, words: tuple[str, ...]) -> tuple[int, str]:
    result = cli("run", "--label", "agent", "--", *REPRIEVE, *words, check=False)
    return result.code, result.err


def in_a_run_without_marks(cli: Cli, words: tuple[str, ...]) -> tuple[int, str]:
    result = cli("run", "--label", "agent", "--", "env", "-u", "REPRIEVE_RUN", *REPRIEVE, *words, check=False)
    return result.code, result.err


def in_a_call(cli: Cli, words: tuple[str, ...]) -> tuple[int, str]:
    claude = Claude(Path(os.getcwd()))
    claude.prompt("tidy")
    claude.before("c1")
    result = cli(*words, check=False)
    claude.after("c1")
    return result.code, result.err


def orphaned(words: tuple[str, ...], answer: Path) -> str:
    """A shell line that runs the words in a session of their own, below init and without our marks."""
    inner = f"{shlex.join((*REPRIEVE, *words))} >{answer} 2>&1; echo code=$? >>{answer}; mv {answer} {answer}.done"
    waits = f"while [ ! -e {answer}.go ]; do sleep 0.02; done"
    return (
        f"env -u REPRIEVE_RUN setsid -f sh -c {shlex.quote(f'{waits}; {inner}')}; touch {answer}.go; "
        f"while [ ! -e {answer}.done ]; do sleep 0.02; done"
    )


def orphaned_in_a_run(cli: Cli, words: tuple[str, ...]) -> tuple[int, str]:
    answer = Path(os.getcwd()).parent / f"answer-{len(os.listdir('..'))}"
    cli("run", "--label", "agent", "--", "sh", "-c", orphaned(words, answer))
    said = Path(f"{answer}.done").read_text()
    return int(said.rpartition("code=")[2]), said


AGENTS = (in_a_run, in_a_run_without_marks, in_a_call, orphaned_in_a_run)


@contextmanager
def unchanged(cli: Cli, world: Path) -> Iterator[None]:
    """Nothing of what the commands could destroy is gone."""
    settings = Path(os.environ["HOME"], ".claude", "settings.json")
    before = settings.read_bytes()
    yield
    assert settings.read_bytes() == before
    assert not Path(os.environ["REPRIEVE_CONFIG"]).exists()
    assert not (world.parent / "undone").exists()
    log = cli("log", "--all", "--json").json["entries"]
    assert not [entry for entry in log if entry["kind"] in ("forget", "prune")]
    assert cli("show", "mine", "--json").json["entry"]["pinned"]
    assert cli("effects", "--json").json["effects"][0]["undo_state"] is None
    assert str(world.parent / "tracked") in cli("track", "--json").json["tracked"]


@pytest.mark.parametrize("ask", AGENTS, ids=lambda ask: str(ask.__name__))
def test_an_agent_is_refused(
    cli: Cli, world: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Cli, tuple[str, ...]], tuple[int, str]]
) -> None:
    monkeypatch.chdir(world)
    with unchanged(cli, world):
        for name, (words, _) in COMMANDS.items():
            code, said = ask(cli, words)
            assert code == 5, (name, said)
            assert "own terminal" in said and ("run:agent" in said or "claude-code:s1" in said), (name, said)


def test_someone_outside_of_any_agent_is_not_refused(cli: Cli, world: Path) -> None:
    for name, (words, code) in COMMANDS.items():
        assert by_someone(cli, words)[0] == code, name


def test_a_person_at_a_terminal_may_while_an_agent_works(world: Path) -> None:
    """The agent works in another terminal; this one is not below it."""
    with run_under_way(world):
        for name, (words, code) in COMMANDS.items():
            assert at_terminal(*words, cwd=world)[0] == code, name


def test_a_person_at_a_terminal_may_while_a_call_is_open(world: Path) -> None:
    with agent_in_a_call(world):
        code, screen = at_terminal("forget", "person.txt", "--yes", cwd=world)
        assert code == 0, screen
        result = subprocess.run(
            [*REPRIEVE, "forget", "a", "--yes"], cwd=world, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert result.returncode == 5 and "claude-code:s1" in result.stderr  # no terminal of its own


def test_an_agent_that_opens_a_terminal_is_refused(world: Path) -> None:
    claude = Claude(world)
    claude.before("c1")
    code, screen = at_terminal("forget", "person.txt", "--yes", cwd=world)
    assert code == 5 and "claude-code:s1" in screen


def test_an_agent_may_look(cli: Cli, world: Path) -> None:
    looks = ("forget person.txt --dry-run", "prune --dry-run", "unprotect --dry-run", "compensate base", "config list",
             "pin latest", "gc", "verify", "track")  # fmt: skip
    for look in looks:
        code, said = in_a_run(cli, tuple(look.split()))
        assert code == 0, said


def test_an_agent_may_name_its_own_checkpoint(cli: Cli, world: Path) -> None:
    inner = shlex.join(REPRIEVE)
    cli("run", "--", "sh", "-c", f"{inner} checkpoint && {inner} name latest works")
    assert cli("show", "works").code == 0


def test_prune_asks_where_nobody_can_answer(cli: Cli, world: Path) -> None:
    result = cli("prune", "--keep-last", "1", "--keep-days", "0", check=False)
    assert result.code == 5 and "--yes" in result.err
    assert not [entry for entry in cli("log", "--all", "--json").json["entries"] if entry["kind"] == "prune"]


def test_another_workspace_is_no_way_around(cli: Cli, world: Path, tmp_path: Path) -> None:
    """Below an agent's call in one workspace, a command about another one is still the agent's."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    cli("checkpoint", cwd=other)
    claude = Claude(world)
    claude.before("c1")
    result = cli("forget", "x", "--yes", cwd=other, check=False)
    assert result.code == 5 and "claude-code:s1" in result.err
    assert cli("config", "set", "exclude", "*", cwd=tmp_path, check=False).code == 5


def test_doctor_names_the_switches_to_a_person_only(cli: Cli, world: Path, home: Path) -> None:
    home.chmod(0o755)  # something is wrong
    assert "REPRIEVE_DISABLED=1" in cli("doctor", check=False).out
    assert "REPRIEVE_DISABLED" not in cli("doctor", env={"CLAUDECODE": "1"}, check=False).out
