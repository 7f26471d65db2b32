"""A disk whose power can be cut: an ext4 image on a loop device, shut down without flushing its journal.

`FS_IOC_SHUTDOWN` with NOLOGFLUSH makes the file system forget what was not synced, as a power cut would; mounting it
again replays its journal. Root only. The image is put back block by block for each point, so inode numbers, times and
the device number stay what they were when the world was prepared.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
_SIZE = 24 << 20


def missing() -> str:
    """Why there can be no such disk here; "" if there can be one."""
    if os.geteuid() != 0:
        return "a power cut needs root (mount, FS_IOC_SHUTDOWN)"
    if not os.path.exists("/dev/loop-control"):
        return "a power cut needs loop devices, and this machine has none"
    if shutil.which("mkfs.ext4") is None or shutil.which("losetup") is None:
        return "a power cut needs mkfs.ext4 and losetup"
    return ""


class Disk:
    """One loop device with an ext4 file system. `keep` remembers its state, `restore` brings it back."""

    def __init__(self, base: Path, *, size: int = _SIZE, options: tuple[str, ...] = (), mount: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="reprieve-disk-", dir=base))
        self.image, self.mount_point, self._mount_options = self.folder / "image", self.folder / "mounted", mount
        self.mount_point.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", *options, str(self.image))
        self.device = _run("losetup", "--find", "--show", str(self.image)).strip()
        self._kept = b""
        self.is_mounted = False

    def mount(self) -> None:
        """Make it usable; after a cut this replays the journal."""
        options = ["-o", self._mount_options] if self._mount_options else []
        _run("mount", *options, self.device, str(self.mount_point))
        self.is_mounted = True

    def unmount(self) -> None:
        """Take it away in order."""
        _run("umount", str(self.mount_point))
        self.is_mounted = False

    def cut(self) -> None:
        """Take it away as a power cut does: what was not synced is lost."""
        fd = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)
        self.unmount()

    def keep(self) -> None:
        """Remember the state; not mounted."""
        with open(self.device, "rb") as file:
            self._kept = file.read()

    def restore(self) -> None:
        """Bring the remembered state back; not mounted."""
        with open(self.device, "wb") as file:  # through the device: its own cache must agree
            file.write(self._kept)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Give the loop device back."""
        if self.is_mounted:
            self.unmount()
        _run("losetup", "--detach", self.device)
        shutil.rmtree(self.folder)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
