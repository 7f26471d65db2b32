"""Stories about git: HEAD, branches, index and stash go back with the files."""

from __future__ import annotations

from golden.stories import story
from golden.world import World


def repository(w: World) -> None:
    """The project as a repository with two commits, on a branch, with something staged."""
    w.write(".gitignore", "build/\n")
    w.write("README.md", "# Project\n")
    w.write("notes.txt", "one\ntwo\n")
    w.sh("git init -q -b main; git add -A; git commit -qm first; git branch old")
    w.sh(
        "echo three >> notes.txt; git commit -qam second; git checkout -qb topic; echo staged > staged; git add staged"
    )
    w.base_checkpoint()


@story(needs="git")
def commits_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "git commit -qm 'by agent'; echo x >> README.md; git commit -qam again")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.git()
    w.ask("redo")
    w.git()


@story(needs="git")
def branches_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "git branch -D old; git branch new; git checkout -qf main")
    w.ask("rollback", "base", "--yes")
    w.git()
    w.ask("redo")
    w.git()


@story(needs="git")
def the_index_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "git rm -q --cached notes.txt; git reset -q staged; echo y > other; git add other")
    w.ask("rollback", "base", "--yes")
    w.git()


@story(needs="git")
def a_hard_reset_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "git reset -q --hard old")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.git()


@story(needs="git")
def a_stash_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "echo x >> notes.txt; git stash -q")
    w.ask("rollback", "base", "--yes")
    w.git()
    w.ask("redo")
    w.git()


@story(needs="git")
def a_merge_of_an_agent(w: World) -> None:
    repository(w)
    w.run("agent", "git commit -qm staged; git checkout -q old; git merge -q --no-ff -m merged topic")
    w.ask("rollback", "base", "--yes")
    w.git()


@story(needs="git")
def a_persons_commit_after_the_agents_edit(w: World) -> None:
    """The commit is the person's and stays; the file goes back."""
    repository(w)
    w.run("agent", "echo agent >> notes.txt")
    w.sh("git commit -qm mine staged")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.git()


@story(needs="git")
def a_branch_that_both_moved(w: World) -> None:
    repository(w)
    w.run("agent", "git commit -qm agent")
    w.sh("echo mine > mine; git add mine; git commit -qm mine")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.git()


@story(needs="git")
def undo_of_one_of_two_commits(w: World) -> None:
    repository(w)
    w.run("first", "echo x > first; git add first; git commit -qm first-run")
    w.run("second", "echo x > second; git add second; git commit -qm second-run")
    w.ask("undo", "step:second", "--yes")
    w.git()
    w.ask("undo", "step:first", "--yes")
    w.git()
