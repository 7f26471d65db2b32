"""Whose work a rollback takes back where a reprieve.toml that a person accepted had hidden some of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli
from support.settings import accept_settings, write_accepted


def test_an_agent_that_excludes_what_it_did_hides_nothing_even_if_that_is_accepted(cli: Cli, project: Path) -> None:
    """Its reprieve.toml goes, what that had excluded is named, and the same command once more takes it back."""
    cli("checkpoint", "start")
    before = (project / "README.md").read_text()
    wreck = "echo 'exclude = [\"*\"]' > reprieve.toml; echo bad > README.md; rm -r src; mkdir new; echo x > new/x"
    cli("run", "--label", "agent", "--", "sh", "-c", wreck)
    accept_settings(project)
    first = cli("rollback", "start", "--json", check=False)
    assert first.code == 6, first.out + first.err
    named = {gap["path"]: gap["reason"] for gap in first.json["report"]["not_undone"]}
    assert "README.md" in named and "run the same command again" in named["README.md"]
    assert not (project / "reprieve.toml").exists()
    cli("rollback", "start")
    assert (project / "README.md").read_text() == before
    assert (project / "src" / "main.py").exists() and not (project / "new").exists()


@pytest.mark.parametrize("hides", ['exclude = [\\"src/\\"]', "max_file_size = 1"])
def test_an_agent_that_excludes_first_and_acts_in_a_later_run_hides_nothing(
    cli: Cli, project: Path, hides: str
) -> None:
    """That a person accepted what the first run asked for does not make the second run's changes theirs."""
    (project / "mine.txt").write_text("before\n")
    cli("checkpoint", "start")
    (project / "mine.txt").write_text("the person's\n")
    before = (project / "src" / "main.py").read_bytes()
    cli("run", "--label", "a1", "--", "sh", "-c", f'echo "{hides}" > reprieve.toml')
    accept_settings(project)
    wreck = "echo bad > src/main.py; touch -d 2099-01-01 src/main.py; rm src/util.py; echo new > src/new.py"
    cli("run", "--label", "a2", "--", "sh", "-c", wreck)
    first = cli("rollback", "start", "--json", check=False)
    assert first.code == 6, first.out + first.err
    assert any(gap["path"].startswith("src") for gap in first.json["report"]["not_undone"])
    cli("rollback", "start")
    assert (project / "src" / "main.py").read_bytes() == before
    assert (project / "src" / "util.py").exists() and not (project / "src" / "new.py").exists()
    assert (project / "mine.txt").read_text() == "the person's\n"


def test_what_a_person_did_where_an_agent_had_hidden_it_comes_back_by_redo(cli: Cli, project: Path) -> None:
    """Nobody saw who it was, so it goes with the agent's; it is named so, and not a byte of it is lost."""
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", "echo 'exclude = [\"src/\"]' > reprieve.toml; echo x > src/x")
    accept_settings(project)
    (project / "src" / "main.py").write_text("the person's edit\n")
    (project / "src" / "mine.py").write_text("the person's own\n")
    assert cli("rollback", "start", check=False).code == 6
    plan = cli("rollback", "start", "--json").json["plan"]
    assert {a["actor"] for a in plan["actions"] if a["path"] == "src/mine.py"} == {"unknown"}
    assert not (project / "src" / "mine.py").exists()
    cli("redo")
    assert (project / "src" / "main.py").read_text() == "the person's edit\n"
    assert (project / "src" / "mine.py").read_text() == "the person's own\n"


def test_what_a_person_excluded_since_is_no_change_of_theirs(cli: Cli, project: Path) -> None:
    """Left alone and named as excluded, instead of a conflict with a person who touched nothing."""
    (project / "build").mkdir()
    (project / "build" / "out").write_text("1")
    cli("checkpoint", "start")
    cli("run", "--label", "agent", "--", "sh", "-c", "echo x > a.log; echo 2 > build/out; echo bad > README.md")
    write_accepted(project, 'exclude = ["*.log", "build/"]\n')
    report = cli("rollback", "start", "--json").json["report"]
    assert report["conflicts"] == []
    named = {gap["path"]: gap["reason"] for gap in report["not_undone"]}
    assert named.keys() == {"a.log", "build", "build/out"}
    assert set(named.values()) == {"not protected now: excluded by configuration"}
    assert (project / "a.log").exists() and (project / "build" / "out").read_text() == "2\n"
    assert (project / "README.md").read_text().startswith("# A project")
    assert (project / "reprieve.toml").exists()


def test_an_agent_that_lowers_the_size_limit_hides_nothing(cli: Cli, project: Path) -> None:
    cli("checkpoint", "start")
    before = (project / "README.md").read_text()
    # a time in the future, so that the file is read again, and found too large, however slow the machine is
    wreck = "echo 'max_file_size = 1' > reprieve.toml; echo bad > README.md; touch -d 2099-01-01 README.md"
    cli("run", "--label", "agent", "--", "sh", "-c", wreck)
    accept_settings(project)
    first = cli("rollback", "start", "--json", check=False)
    assert first.code == 6, first.out + first.err
    assert [gap["path"] for gap in first.json["report"]["not_undone"]] == ["README.md"]
    cli("rollback", "start")
    assert (project / "README.md").read_text() == before and not (project / "reprieve.toml").exists()
