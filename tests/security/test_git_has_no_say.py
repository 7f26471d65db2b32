"""Git's configuration, hooks, attributes and variables have no say in a checkpoint; the user's .git is only read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support import Cli
from support.acts import assert_tree, checkpoint, git, redo, rollback
from support.tree import Fingerprint, fingerprint

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(project: Path) -> Path:
    """The project as a git repository with a commit, a branch, a stash, a staged file and dirty work."""
    git("init", "-q", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-q", "-m", "first", cwd=project)
    git("branch", "side", cwd=project)
    (project / "README.md").write_text("stashed\n")
    git("stash", "-q", cwd=project)
    (project / "staged.txt").write_text("staged\n")
    git("add", "staged.txt", cwd=project)
    (project / "README.md").write_text("dirty work\n")
    (project / "untracked.txt").write_text("untracked\n")
    return project


def git_directory(project: Path) -> Fingerprint:
    """Every byte, mode and time of .git."""
    return fingerprint(project / ".git")


def there_and_back(cli: Cli, project: Path, env: dict[str, str]) -> None:
    """A checkpoint, a wreck, a rollback and a redo work as ever in this environment."""
    before = fingerprint(project)
    checkpoint(cli, env=env)
    (project / "README.md").write_text("wrecked\n")
    (project / "untracked.txt").unlink()
    (project / "made.txt").write_text("made\n")
    wrecked = fingerprint(project)
    rollback(cli, env=env)
    assert_tree(project, before)
    redo(cli, env=env)
    assert_tree(project, wrecked)
    rollback(cli, env=env)
    assert_tree(project, before)


def test_EC07_git_variables_in_the_environment_change_nothing(cli: Cli, repository: Path, tmp_path: Path) -> None:
    """Run from a git hook, with GIT_DIR and all, a checkpoint commits nothing and touches no repository."""
    other = tmp_path / "other"
    other.mkdir()
    git("init", "-q", cwd=other)
    (other / "a").write_text("a\n")
    git("add", "a", cwd=other)
    git("commit", "-q", "-m", "other", cwd=other)
    env = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(repository),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_PREFIX": "src/",
    }
    mine, theirs = git_directory(repository), git_directory(other)
    there_and_back(cli, repository, env)
    assert git_directory(repository) == mine
    assert git_directory(other) == theirs


def test_CT12_the_users_index_is_not_rewritten(cli: Cli, repository: Path) -> None:
    """With GIT_INDEX_FILE inherited, what git calls staged and untracked is the same after a checkpoint."""
    said = git("status", "--porcelain", "--ignored", cwd=repository)
    index = (repository / ".git" / "index").read_bytes()
    for _ in range(3):
        checkpoint(cli, env={"GIT_INDEX_FILE": str(repository / ".git" / "index")})
    assert (repository / ".git" / "index").read_bytes() == index
    assert git("status", "--porcelain", "--ignored", cwd=repository) == said
    assert "?? untracked.txt" in said and "A  staged.txt" in said


@pytest.mark.parametrize("test_id", ["EC12", "CT11"])
def test_EC12_CT11_signing_and_hooks_of_the_user_are_not_run(
    cli: Cli, repository: Path, tmp_path: Path, test_id: str
) -> None:
    """A global configuration that signs commits, or whose hooks fail, neither stops a checkpoint nor is run by it."""
    marker = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
    ):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\nexit 1\n")
        (hooks / name).chmod(0o755)
    gpg = tmp_path / "gpg"
    gpg.write_text(f"#!/bin/sh\necho gpg >> {marker}\nexit 1\n")
    gpg.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = {gpg}\n"
        if test_id == "EC12"
        else f"[core]\n\thooksPath = {hooks}\n\tfsmonitor = {gpg}\n"
    )
    mine = git_directory(repository)
    there_and_back(cli, repository, {"GIT_CONFIG_GLOBAL": str(config), "HOME": str(tmp_path)})
    assert not marker.exists()
    assert git_directory(repository) == mine


def test_EC17_attributes_and_ignore_rules_do_not_reach_the_bytes(cli: Cli, repository: Path, tmp_path: Path) -> None:
    """Line ends, filters and keyword expansion of .gitattributes leave content alone; ignored files are captured."""
    marker = tmp_path / "filtered"
    (repository / ".gitattributes").write_text(
        "* text=auto eol=lf\n*.id ident\n*.sec filter=evil\n*.sub export-subst\n"
    )
    (repository / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (repository / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r")
    (repository / "a.id").write_bytes(b"$Id$\n")
    (repository / "a.sub").write_bytes(b"$Format:%H$\n")
    (repository / "a.sec").write_bytes(b"secret\n")
    git("config", "filter.evil.clean", f"sh -c 'touch {marker}; cat'", cwd=repository)
    git("config", "filter.evil.smudge", f"sh -c 'touch {marker}; cat'", cwd=repository)
    (repository / "build").mkdir()
    (repository / "build" / "kept.o").write_bytes(b"ignored, yet wanted")
    before = fingerprint(repository)
    checkpoint(cli)
    for name in ("crlf.txt", "mixed.txt", "a.id", "a.sub", "a.sec", ".env"):
        (repository / name).write_bytes(b"gone\n")
    shutil.rmtree(repository / "build")
    (repository / ".gitattributes").unlink()
    rollback(cli)
    assert_tree(repository, before)
    assert not marker.exists()


def test_EC07_the_users_git_directory_is_byte_identical(cli: Cli, repository: Path) -> None:
    """After checkpoints and looks, .git has the same bytes, modes and times, the same stash and branches."""
    stashes, branches = git("stash", "list", cwd=repository), git("branch", "-a", cwd=repository)
    mine = git_directory(repository)
    for i in range(4):
        (repository / "README.md").write_text(f"{i}\n")
        checkpoint(cli)
        cli("status")
        cli("diff", "--stat", check=False)
    assert git_directory(repository) == mine
    assert git("stash", "list", cwd=repository) == stashes
    assert git("branch", "-a", cwd=repository) == branches


def test_EC07_git_is_not_even_run(cli: Cli, repository: Path, tmp_path: Path) -> None:
    """A program named git that comes first on the PATH is never started."""
    marker = tmp_path / "ran"
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f'#!/bin/sh\necho "$@" >> {marker}\nexit 1\n')
    (folder / "git").chmod(0o755)
    there_and_back(cli, repository, {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    cli("status", env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    assert not marker.exists()
