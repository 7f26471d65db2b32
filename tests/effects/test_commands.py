"""Commands that the catalog knows are recorded as they run, with what it takes to undo them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import Cli
from support.claude import Claude


def git(where: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def remote(project: Path) -> Path:
    """A remote repository with one commit, and the project as a clone of it."""
    bare = project.parent / "remote.git"
    git(project.parent, "init", "-q", "--bare", str(bare))
    git(project, "init", "-q")
    git(project, "config", "user.name", "x")
    git(project, "config", "user.email", "x@example.com")
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


def commit_and_push(project: Path) -> None:
    """One call of an agent."""
    script = "echo agent >> README.md && git commit -qam two && git push -q origin main"
    claude = Claude(project)
    claude.before("c1", script)
    subprocess.run(["sh", "-c", script], cwd=project, check=True)
    claude.after("c1", script)


@pytest.mark.parametrize("move", [["undo", "call:c1"], ["rollback", "base"]])
def test_what_was_committed_and_pushed_goes_when_the_push_is_undone(
    cli: Cli, project: Path, remote: Path, move: list[str]
) -> None:
    """The remote no longer has the commit, so "it was pushed" is no reason to keep it here."""
    before = git(project, "rev-parse", "HEAD")
    cli("checkpoint", "base")
    commit_and_push(project)
    plan = cli(*move, "--dry-run", "--json").json["plan"]
    assert ".git/refs/heads/main" in [action.get("path") for action in plan["actions"]] and not plan["not_undone"]
    cli(*move, "--yes")
    assert git(remote, "rev-parse", "main") == git(project, "rev-parse", "HEAD") == before
    assert not git(project, "status", "--porcelain", "--untracked-files=no")
    assert "pushed" not in cli(*move).out


@pytest.mark.parametrize("move", [["undo", "call:c1"], ["rollback", "base"]])
def test_what_was_pushed_stays_while_the_push_is_not_undone(
    cli: Cli, project: Path, remote: Path, move: list[str]
) -> None:
    """The push needs --yes. Undone by itself, it is no reason any more."""
    before = git(project, "rev-parse", "HEAD")
    cli("checkpoint", "base")
    commit_and_push(project)
    left = cli(*move, "--json", check=False)
    (gap,) = left.json["report"]["not_undone"]
    assert left.code == 6 and git(project, "rev-parse", "HEAD") == git(remote, "rev-parse", "main") != before
    assert "pushed to origin/main" in gap["reason"] and ("--pushed" in gap["reason"]) == (move[0] == "rollback")
    assert not any(".git" in action["path"] for action in left.json["plan"]["actions"] if "path" in action)
    cli("compensate", "base", "--execute", "--yes")
    assert cli(*move).code == 0
    assert git(remote, "rev-parse", "main") == git(project, "rev-parse", "HEAD") == before


def test_what_was_pushed_stays_where_the_push_cannot_be_undone(cli: Cli, project: Path, remote: Path) -> None:
    """Somebody pushed on top of it in the meantime: a conflict, and whoever wants the rest undone hears what stays."""
    cli("checkpoint", "base")
    commit_and_push(project)
    here = git(project, "rev-parse", "HEAD")
    other = project.parent / "other"
    git(project.parent, "clone", "-q", str(remote), str(other), "-b", "main")
    git(other, "commit", "-q", "--allow-empty", "-m", "three")
    git(other, "push", "-q", "origin", "main")
    assert cli("undo", "call:c1", "--yes", check=False).code == 4
    answer = cli("undo", "call:c1", "--yes", "--json", "--on-conflict", "keep", check=False)
    assert answer.code == 6 and git(project, "rev-parse", "HEAD") == here
    assert "pushed to origin/main" in answer.json["report"]["not_undone"][0]["reason"]
    assert not any(".git" in action["path"] for action in answer.json["plan"]["actions"] if "path" in action)


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
    assert result.code == 4 and "not as the agent left it" in result.err
    result = cli("rollback", "base", "--effects", "--yes", "--on-conflict", "keep", check=False)
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
    assert result.code == 6 and "not undone (failed)" in result.out  # it could not even be looked at
    away.rename(remote)
    cli("rollback", "base", "--effects", "--yes")
    assert git(remote, "rev-parse", "main") == before


@pytest.mark.parametrize(
    ("prepare", "push"),
    [
        ("git tag v1", "git push -q origin v1"),
        ("git tag -a -m one v1", "git push -q origin refs/tags/v1"),
        ("git tag v1; git push -q origin v1", "git push -q origin :v1"),
        ("git tag v1; git push -q origin v1", "git push -q origin --delete v1"),
        ("git tag v1; git branch side", "git push -q origin v1 side main:refs/heads/copy"),
        ("git commit -qm two --allow-empty", "git push -q origin HEAD"),
        ("git commit -qm another --amend --allow-empty", "git push -q origin +main"),
        ("git branch side", "git push -q -u origin side"),
        ("true", "git tag v1 && git push -q origin v1"),
        ("true", "git branch side && git push -q origin side"),
    ],
)
def test_whatever_a_push_names_is_undone_on_the_remote(
    cli: Cli, project: Path, remote: Path, prepare: str, push: str
) -> None:
    """Tags, deletions and several refs, by an agent; also those that the same line makes."""
    subprocess.run(["sh", "-c", prepare], cwd=project, check=True)
    before = git(remote, "show-ref")
    cli("checkpoint", "base")
    claude = Claude(project)
    claude.before("c1", push)
    subprocess.run(["sh", "-c", push], cwd=project, check=True)
    claude.after("c1", push)
    assert git(remote, "show-ref") != before
    result = cli("compensate", "base", "--execute", "--yes")
    assert git(remote, "show-ref") == before and "1 effect undone, 0 not" in result.out


def test_a_push_that_changed_nothing_leaves_what_was_there(cli: Cli, project: Path, remote: Path) -> None:
    git(project, "tag", "v1")
    git(project, "push", "-q", "origin", "v1")
    before = git(remote, "show-ref")
    cli("checkpoint", "base")
    cli("run", "--", "git", "push", "-q", "origin", "main", "v1")
    assert "nothing to undo" in cli("rollback", "base", "--dry-run").out
    result = cli("rollback", "base", "--yes")
    assert git(remote, "show-ref") == before and "0 effects undone, 0 not, 1 kept" in result.out


@pytest.mark.parametrize("push", ["git push -q --tags", "git push -q --all origin", "git push -q"])
def test_a_push_that_names_no_ref_has_no_inverse(cli: Cli, project: Path, remote: Path, push: str) -> None:
    git(project, "tag", "v1")
    git(project, "config", "push.autoSetupRemote", "true")
    cli("checkpoint", "base")
    cli("run", "--", *push.split())
    (effect,) = cli("effects", "--json").json["effects"]
    assert (effect["state"], effect["class"]) == ("done", "irreversible")
    assert cli("rollback", "base", "--yes", check=False).code == 6


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
