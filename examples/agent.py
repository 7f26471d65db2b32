"""A scripted "agent" that means well and wrecks the folder it works in. Used by ./try; run it under `reprieve run`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def wreck(root: Path, outside: Path) -> None:
    """Everything that people lose to agents, in one go."""
    print("agent: I will clean this up for you")
    (root / "app.py").write_text("print('rewritten from scratch')\n")  # an edit
    (root / "notes.md").unlink()  # a delete
    shutil.rmtree(root / "docs")  # a whole folder
    (root / ".env").write_text("TOKEN=changed\n")  # a file that git ignores
    (root / "deploy.sh").chmod(0o644)  # a mode
    shutil.rmtree(root / "data")  # a folder swapped for a link that leads out of the project
    (root / "data").symlink_to(outside)
    (root / "logo.bin").write_bytes(b"")  # a truncated binary
    os.rename(root / "src" / "a.py", root / "src" / "renamed.py")
    (root / "junk").mkdir()
    (root / "junk" / "todo.txt").write_text("leftovers\n")
    print("agent: done, everything is much better now")


if __name__ == "__main__":
    wreck(Path.cwd(), Path(sys.argv[1]))
