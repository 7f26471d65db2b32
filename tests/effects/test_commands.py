"""Commands that the catalog knows are recorded as they run, with what it takes to undo them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import Cli


def git(where: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def remote(project: Path) -> Path:
    """A remote repository with one commit, and the project as a clone of it."""
    bare = project.parent / "remote.git"
    git(project.parent, "init", "-q", "--bare", str(bare))
    git(project, "init", "-q")
    git(project, "add", "README.md")
    git(project, "commit", "-qm", "one")
    git(project, "remote", "add", "origin", str(bare))
    git(project, "push", "-q", "origin", "main")
    return bare


def test_a_push_is_recorded_and_undone_on_the_remote(cli: Cli, project: Path, remote: Path) -> None:
    before = git(remote, "rev-parse", "main")
    cli("checkpoint", "base")
    (project / "README.md").write_text("an agent's work")
    git(project, "commit", "-qam", "two")
    cli("run", "--", "git", "push", "-q", "origin", "main")
    assert git(remote, "rev-parse", "main") != before
    (effect,) = cli("effects", "--json").json["effects"]
    assert (effect["state"], effect["class"]) == ("done", "compensable")
    cli("rollback", "base", "--yes", "--pushed", "--everything")
    assert git(remote, "rev-parse", "main") == before
    assert (project / "README.md").read_text().startswith("# A project")
    assert cli("rollback", "base", "--yes").code == 0


def test_bad_case_6_a_later_push_by_somebody_else_is_not_overwritten(cli: Cli, project: Path, remote: Path) -> None:
    cli("checkpoint", "base")
    (project / "README.md").write_text("an agent's work")
    git(project, "commit", "-qam", "two")
    cli("run", "--", "git", "push", "-q", "origin", "main")
    other = project.parent / "other"
    git(project.parent, "clone", "-q", str(remote), str(other), "-b", "main")
    (other / "README.md").write_text("a person's work")
    git(other, "commit", "-qam", "three")
    git(other, "push", "-q", "origin", "main")
    theirs = git(remote, "rev-parse", "main")
    result = cli("rollback", "base", "--effects", "--yes", check=False)
    assert result.code == 6, result
    assert git(remote, "rev-parse", "main") == theirs


def test_a_push_whose_undo_failed_is_undone_once_the_remote_answers(cli: Cli, project: Path, remote: Path) -> None:
    """Its lease fits once, so that a repeat does no harm."""
    before = git(remote, "rev-parse", "main")
    cli("checkpoint", "base")
    (project / "README.md").write_text("an agent's work")
    git(project, "commit", "-qam", "two")
    cli("run", "--", "git", "push", "-q", "origin", "main")
    away = remote.rename(remote.with_name("away.git"))
    result = cli("rollback", "base", "--effects", "--yes", check=False)
    assert result.code == 6 and "not undone (manual)" in result.out
    away.rename(remote)
    cli("rollback", "base", "--effects", "--yes")
    assert git(remote, "rev-parse", "main") == before


def test_a_failing_command_is_not_taken_for_done(cli: Cli, project: Path, remote: Path) -> None:
    cli("checkpoint", "base")
    cli("run", "--", "git", "push", "-q", "origin", "no-such-branch", check=False)
    effects = cli("effects", "--json").json["effects"]
    assert [effect["state"] for effect in effects] == ["refused"]  # the remote was looked at


def test_a_failing_line_does_not_deny_what_cannot_be_looked_at(cli: Cli, project: Path, remote: Path) -> None:
    """`npm unpublish x && false` fails after it has done everything."""
    (project / "npm").write_text("#!/bin/sh\nexit 1\n")
    (project / "npm").chmod(0o755)
    cli("checkpoint", "base")
    cli("run", "--", str(project / "npm"), "unpublish", "a-package@1.0.0", check=False)
    effect = cli("effects", "--json").json["effects"][0]
    assert (effect["state"], effect["class"]) == ("unknown", "irreversible")


def test_what_stays_in_the_folder_is_no_effect(cli: Cli, project: Path, remote: Path) -> None:
    cli("run", "--", "git", "branch", "topic")
    cli("run", "--", "ls")
    assert cli("effects").out == "No effects\n"
