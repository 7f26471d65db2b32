"""Show the main job on a scratch folder and check every byte of it. Run by ./try; needs only `reprieve` on PATH.

The checking shares no code with Reprieve: it reads the folder before and after with nothing but `os` and `hashlib`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

AGENT = Path(__file__).resolve().parent / "agent.py"


def make_project(root: Path) -> None:
    """A project with one of everything that is easily lost."""
    root.mkdir()
    (root / "app.py").write_text("def main():\n    print('hello')\n\n\nmain()\n")
    (root / "notes.md").write_text("# Notes\n\nnever committed anywhere")
    (root / "docs" / "empty").mkdir(parents=True)
    (root / "docs" / "guide.md").write_text("# Guide\n")
    (root / ".gitignore").write_text(".env\n")
    (root / ".env").write_text("TOKEN=secret\n")
    (root / ".env").chmod(0o600)
    (root / "deploy.sh").write_text("#!/bin/sh\necho deploying\n")
    (root / "deploy.sh").chmod(0o755)
    (root / "data").mkdir()
    (root / "data" / "rows.csv").write_text("a,b\n1,2\n")
    (root / "logo.bin").write_bytes(bytes(range(256)) * 8)
    (root / "src").mkdir()
    (root / "src" / "a.py").write_text("A = 1\n")
    os.link(root / "src" / "a.py", root / "src" / "same-file.py")
    (root / "latest").symlink_to("docs/guide.md")
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        when = 1_700_000_000_123_456_789 + number * 1_000_000_007
        os.utime(path, ns=(when, when), follow_symlinks=False)


def picture(root: Path) -> dict[str, tuple[object, ...]]:
    """Every path with its kind, mode, nanosecond mtime, owner, bytes or target, and the names it shares a file with."""
    seen: dict[str, tuple[object, ...]] = {}
    files: dict[tuple[int, int], list[str]] = {}
    for folder, folders, names in os.walk(root):
        for name in [".", *folders, *names] if folder == str(root) else [*folders, *names]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            key = os.path.relpath(path, root)
            content = ""
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
                files.setdefault((info.st_dev, info.st_ino), []).append(key)
            seen[key] = (stat.filemode(info.st_mode), info.st_mtime_ns, info.st_uid, info.st_gid, content)
    for names in files.values():
        for name in names:
            seen[name] += (tuple(sorted(names)),)
    return seen


def differences(one: dict[str, tuple[object, ...]], two: dict[str, tuple[object, ...]]) -> list[str]:
    return sorted(path for path in one.keys() | two.keys() if one.get(path) != two.get(path))


class Show:
    """Runs commands in the project and shows them as a person would type them."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.env = {
            **os.environ,
            "REPRIEVE_HOME": str(home),
            "REPRIEVE_CONFIG": str(home.parent / "no-config.toml"),
            "NO_COLOR": "1",
        }

    def title(self, text: str) -> None:
        print(f"\n\x1b[1m== {text}\x1b[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)

    def run(self, *words: str) -> None:
        print(f"$ {shlex.join(words)}", flush=True)
        subprocess.run(words, cwd=self.root, env=self.env, check=True, stdin=subprocess.DEVNULL)

    def check(self, claim: str, is_true: bool, evidence: list[str] | None = None) -> None:
        print(f"{'ok  ' if is_true else 'FAIL'}  {claim}", flush=True)
        if not is_true:
            sys.exit(f"this should not happen; it concerns: {', '.join(evidence or ['see above'])}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="reprieve-try-") as scratch:
        root, outside = Path(scratch, "project"), Path(scratch, "outside")
        outside.mkdir()
        (outside / "precious.txt").write_text("not part of the project\n")
        make_project(root)
        show = Show(root, Path(scratch, "store"))

        show.title("A project, in a scratch folder")
        show.run("ls", "-lAR")
        before, around = picture(root), picture(outside)

        show.title("An agent works on it, under `reprieve run`")
        agent = os.path.relpath(copy(AGENT, Path(scratch)), root)
        show.run("reprieve", "run", "--label", "clean up", "--", "python3", agent, "../outside")
        after = picture(root)
        lost = differences(before, after)
        show.check(f"the agent changed, deleted or created {len(lost)} paths", len(lost) >= 10)

        show.title("What happened?")
        show.run("reprieve", "status")
        show.run("reprieve", "diff", "--stat", "step:clean up")
        show.run("reprieve", "diff", "step:clean up", "--", "app.py", ".env")

        show.title("Take it back")
        show.run("reprieve", "rollback", "step:clean up")
        wrong = differences(before, picture(root))
        show.check(f"all {len(before)} paths have their bytes, modes, owners, times and links again", not wrong, wrong)
        wrong = differences(around, picture(outside))
        show.check("nothing outside was touched through the link that the agent made", not wrong, wrong)

        show.title("Take the taking-back back")
        show.run("reprieve", "redo")
        wrong = differences(after, picture(root))
        show.check("everything is again as the agent left it", not wrong, wrong)

        show.title("One file only, then all of it once more")
        show.run("reprieve", "revert", ".env", "--to", "step:clean up")
        show.check("the ignored file is back", picture(root)[".env"] == before[".env"])
        show.run("reprieve", "rollback", "step:clean up")
        wrong = differences(before, picture(root))
        show.check(f"all {len(before)} paths are as they were", not wrong, wrong)

        show.title("What Reprieve remembers")
        show.run("reprieve", "log")
        show.run("reprieve", "verify")

    show.title("Now a folder of your own")
    print(f'''Everything above happened in a scratch folder that is gone now. For a folder of yours:

  export PATH="{Path(sys.argv[1]).parent if len(sys.argv) > 1 else "…"}:$PATH"
  cd YOUR-PROJECT
  reprieve run -- YOUR-AGENT    # or, at any time: reprieve checkpoint
  reprieve status               # what changed
  reprieve rollback             # take it back''')


def copy(source: Path, folder: Path) -> Path:
    target = folder / source.name
    target.write_bytes(source.read_bytes())
    return target


if __name__ == "__main__":
    main()
