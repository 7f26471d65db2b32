"""File systems of other kinds, mounted for as long as a test lasts. Needs root and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
    "exfat": ["mkfs.exfat"],
}


def tool(name: str) -> str:
    """The path of a system program, which is often not on a user's PATH; skips where it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*argv: str | Path) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = done.stderr.strip().partition("\n")[0].rpartition(": ")[2]
        pytest.skip(f"this machine does not let us use {Path(argv[0]).name}: {why}")
    return done.stdout


@contextmanager
def mounted(kind: str, at: Path, *, scratch: Path, size_mb: int = 400, source: Path | None = None) -> Iterator[Path]:
    """A file system at `at`: tmpfs, bind or bindfs (of `source`), overlay, or one of MAKERS on a loop image."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mount = loop = ""
    image = None
    at.mkdir(exist_ok=True) if source is None or source.is_dir() else at.touch()
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "none", at)
    elif kind == "bind":
        _run("mount", "--bind", source or scratch, at)
    elif kind == "bindfs":
        # without its caches: the two names of a hard link would show two states for a second
        _run(tool("bindfs"), "-o", "attr_timeout=0,entry_timeout=0", source or scratch, at)
    elif kind == "overlay":
        lower, upper, work = (scratch / name for name in ("lower", "upper", "work"))
        for folder in (lower, upper, work):
            folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "none", at)
    else:
        image = scratch / f"{kind}.img"
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        maker = MAKERS[kind]
        _run(tool(maker[0]), *maker[1:], image)
        if kind == "exfat":  # FUSE wants a block device
            mount, loop = tool("mount.exfat-fuse"), _run(tool("losetup"), "--find", "--show", image).strip()
    try:
        if mount:
            _run(mount, loop, at)
        elif image is not None:
            _run("mount", "-o", "loop", image, at)
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False, capture_output=True)
        if loop:
            subprocess.run([tool("losetup"), "--detach", loop], check=False, capture_output=True)
