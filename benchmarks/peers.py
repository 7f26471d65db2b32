"""What people use instead: each one saves a tree and brings it back, in its own best-known way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks import trees
from benchmarks.measure import Took, disk_kb, process, several


class System:
    """A way to save and restore. `begin` makes an empty store and is not measured; `save` and `restore` are."""

    name = ""
    tool = ""  # the program that must be there
    keeps_history = True  # False: every save is a whole copy, too large to do fifty times

    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        self.store = store
        self.env = {**trees.quiet_env(), "HOME": str(store.parent / "home"), "LC_ALL": "C.UTF-8"}
        self.saves = 0

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be measured here, "" if it can."""
        return "" if not cls.tool or shutil.which(cls.tool) else f"{cls.tool} is not installed"

    def begin(self) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        self.store.mkdir(parents=True)
        (self.store.parent / "home").mkdir(exist_ok=True)
        self.saves = 0

    def save(self) -> tuple[Took, str]:
        """Take a checkpoint; the text names it."""
        raise NotImplementedError

    def restore(self, save: str) -> Took:
        """Make the tree what it was at that checkpoint."""
        raise NotImplementedError

    def disk_kb(self) -> int:
        return disk_kb(self.store)

    def close(self) -> None:
        """Nothing of this system runs any longer."""

    def next_name(self) -> str:
        self.saves += 1
        return f"save{self.saves:05}"


class GitCommit(System):
    """A shadow repository beside the tree: add -A and commit; reset --hard (which leaves created files behind)."""

    name = "git commit / reset --hard"
    tool = "git"

    def git(self, *args: str) -> list[str]:
        return ["git", f"--git-dir={self.store}/git", f"--work-tree={self.root}", *args]

    def begin(self) -> None:
        super().begin()
        self.env.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull)
        process(["git", "init", "-q", "--bare", f"{self.store}/git"], cwd=self.store, env=self.env)
        settings = {
            "user.name": "x",
            "user.email": "x@example.org",
            "core.bare": "false",
            "gc.auto": "0",  # or a repack in the background is measured together with whatever runs then
            "maintenance.auto": "false",
            "core.autocrlf": "false",
        }
        for key, value in settings.items():
            process(self.git("config", key, value), cwd=self.root, env=self.env)

    def save(self) -> tuple[Took, str]:
        name = self.next_name()
        commands = [self.git("add", "-A"), self.git("commit", "-q", "--allow-empty", "--no-verify", "-m", name)]
        took = several(commands, cwd=self.root, env=self.env)
        return took, process(self.git("rev-parse", "HEAD"), cwd=self.root, env=self.env).output.strip()

    def restore(self, save: str) -> Took:
        return process(self.git("reset", "-q", "--hard", save), cwd=self.root, env=self.env)


class GitTree(GitCommit):
    """The same without a commit: add -A and write-tree; read-tree and checkout-index."""

    name = "git write-tree / checkout-index"

    def save(self) -> tuple[Took, str]:
        self.next_name()
        took = several([self.git("add", "-A"), self.git("write-tree")], cwd=self.root, env=self.env)
        return took, took.output.strip()

    def restore(self, save: str) -> Took:
        commands = [self.git("read-tree", save), self.git("checkout-index", "-q", "-a", "-f")]
        return several(commands, cwd=self.root, env=self.env)


class Restic(System):
    name = "restic"
    tool = "restic"

    def restic(self, *args: str) -> list[str]:
        return ["restic", "-q", "-r", f"{self.store}/repo", "--cache-dir", f"{self.store}/cache", *args]

    def begin(self) -> None:
        super().begin()
        self.env["RESTIC_PASSWORD"] = "benchmark"
        process(self.restic("init"), cwd=self.root, env=self.env)

    def save(self) -> tuple[Took, str]:
        name = self.next_name()
        return process(self.restic("backup", "--tag", name, str(self.root)), cwd=self.root, env=self.env), name

    def restore(self, save: str) -> Took:
        return process(self.restic("restore", "latest", "--tag", save, "--target", "/"), cwd=self.root, env=self.env)

    def disk_kb(self) -> int:
        return disk_kb(self.store / "repo")


class Borg(System):
    name = "borg"
    tool = "borg"

    def begin(self) -> None:
        super().begin()
        self.env.update(BORG_BASE_DIR=f"{self.store}/base", BORG_REPO=f"{self.store}/repo")
        process(["borg", "init", "-e", "none"], cwd=self.root, env=self.env)

    def save(self) -> tuple[Took, str]:
        name = self.next_name()
        return process(["borg", "create", f"::{name}", "."], cwd=self.root, env=self.env), name

    def restore(self, save: str) -> Took:
        # warnings (1) are about the root's own attributes
        return process(["borg", "extract", f"::{save}"], cwd=self.root, env=self.env, ok=(0, 1))

    def disk_kb(self) -> int:
        return disk_kb(self.store / "repo")


class Rsync(System):
    name = "rsync --link-dest"
    tool = "rsync"

    def save(self) -> tuple[Took, str]:
        before = self.store / f"save{self.saves:05}"
        name = self.next_name()
        link = [f"--link-dest={before}"] if before.exists() else []
        took = process(
            ["rsync", "-a", "--delete", *link, f"{self.root}/", f"{self.store}/{name}/"], cwd=self.root, env=self.env
        )
        return took, name

    def restore(self, save: str) -> Took:
        return process(
            ["rsync", "-a", "--delete", f"{self.store}/{save}/", f"{self.root}/"], cwd=self.root, env=self.env
        )


class Copy(System):
    """cp -a there; delete everything and cp -a back."""

    name = "cp -a"
    tool = "cp"
    keeps_history = False

    def save(self) -> tuple[Took, str]:
        name = self.next_name()
        return process(["cp", "-a", f"{self.root}/.", f"{self.store}/{name}"], cwd=self.store, env=self.env), name

    def restore(self, save: str) -> Took:
        script = 'find "$1" -mindepth 1 -delete && cp -a "$2/." "$1"'
        return process(["sh", "-c", script, "sh", str(self.root), f"{self.store}/{save}"], cwd=self.store, env=self.env)


PEERS: list[type[System]] = [GitCommit, GitTree, Restic, Borg, Rsync, Copy]
