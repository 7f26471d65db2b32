"""An undo runs the program that was recorded, and never what an agent wrote into it since."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import reprieve
from reprieve.effects.scripts import changed, frozen
from support import Cli

WANTED = "#!/bin/sh\necho stopped >> ../log\n"
PLANTED = "#!/bin/sh\necho planted >> ../log\n"


@pytest.fixture
def script(project: Path, cli: Cli) -> Path:
    """A script of a person's in the folder, in a checkpoint."""
    made = project / "stop.sh"
    made.write_text(WANTED)
    made.chmod(0o755)
    (project / "other").mkdir()
    (project / "data.json").write_text("{}")
    cli("checkpoint", "base")
    return made


def log_of(project: Path) -> str:
    log = project.parent / "log"
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize(
    "argv",
    [["./stop.sh"], ["{root}/stop.sh"], ["sh", "stop.sh"], ["env", "-i", "sh", "{root}/stop.sh"], ["./way.sh"]],
    ids=["program", "whole path", "shell", "wrapper", "link"],
)
def test_a_script_that_was_changed_since_is_not_run(cli: Cli, project: Path, script: Path, argv: list[str]) -> None:
    """Nothing is touched; with the files taken back first, it is the person's script again and is run."""
    (project / "way.sh").symlink_to("stop.sh")
    cli("record", "command", "--description", "started", "--", *(word.format(root=project) for word in argv))
    cli("run", "--", "sh", "-c", f"printf '%s' '{PLANTED}' > stop.sh")
    for words in (("rollback", "base"), ("compensate", "base", "--execute")):
        done = cli(*words, "--yes", check=False)
        assert done.code in (4, 6) and ".sh was changed since this was recorded" in done.out + done.err
    assert log_of(project) == "" and script.read_text() == PLANTED
    cli("rollback", "base", "--files")
    assert script.read_text() == WANTED
    cli("rollback", "base", "--yes")
    assert log_of(project) == "stopped\n"


def test_what_is_no_script_may_change(cli: Cli, project: Path, script: Path) -> None:
    """A file that a command is about is no text that it runs: else no inverse could remove what an agent made."""
    cli("record", "command", "--description", "made it", "--", "rm", "data.json")
    cli("record", "command", "--description", "started", "--", "sh", "stop.sh", "data.json")
    (project / "data.json").write_text('{"a": 1}')
    cli("rollback", "base", "--effects", "--yes")
    assert log_of(project) == "stopped\n" and not (project / "data.json").exists()


def test_tracked_paths_are_where_an_agent_works_too(cli: Cli, project: Path, script: Path) -> None:
    beside = project.parent / "beside"
    beside.mkdir()
    (beside / "stop.sh").write_text(WANTED)
    cli("track", str(beside))
    cli("record", "command", "--description", "started", "--", "sh", str(beside / "stop.sh"))
    (beside / "stop.sh").write_text(PLANTED)
    assert cli("rollback", "base", "--effects", "--yes", check=False).code != 0
    assert log_of(project) == ""


def test_a_program_is_the_one_that_was_meant_wherever_the_rollback_is_run(
    cli: Cli, project: Path, script: Path
) -> None:
    """Named by a path from here, run in another folder, taken back from a third."""
    script.write_text(WANTED.replace("../log", f"{project.parent}/log"))
    cli("record", "command", "--description", "started", "--cwd", "other", "--", "./stop.sh")
    cli("rollback", "base", "--effects", "--yes", cwd=project / "src")
    assert log_of(project) == "stopped\n"


def test_an_agents_script_needs_a_person(project: Path, script: Path, cli: Cli) -> None:
    """As a shell's text would: what lies in the folder may be the agent's own."""
    from reprieve.app.effects import record_command

    with reprieve.open(project) as ws:
        record_command(ws._inner, [str(script)], description="d", cwd=str(project), is_agents_word=True)
    done = cli("rollback", "base", "--yes", check=False)
    assert done.code == 5 and "reprieve approve" in done.err
    assert log_of(project) == ""


def test_only_what_lies_in_the_trees_is_frozen(project: Path, script: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.sh"
    outside.write_text(WANTED)
    commands = [[sys.executable, "stop.sh", str(outside)], ["/bin/sh", str(outside)], ["/bin/cat", "stop.sh"]]
    found = frozen(commands, cwd=str(project), within=[str(project)])
    assert [one["path"] for one in found] == [str(script)]
    assert changed({"scripts": found}) == "" and changed({}) == ""
    script.unlink()
    assert "can't be read" in changed({"scripts": found})
