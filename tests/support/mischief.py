"""Everything that can be done to a tree so that a watcher may miss it, chosen at random."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import shutil
from pathlib import Path

_USUAL = (
    errno.ENOENT,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EPERM,
    errno.EINVAL,
    errno.ENOTEMPTY,
    errno.ELOOP,
)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Mischief:
    """Acts on the tree at `tree`, and on `outside` beside it on the same file system. Keeps files open and mapped."""

    def __init__(self, tree: Path, outside: Path, seed: int) -> None:
        self.tree, self.outside = tree, outside
        self.random = random.Random(seed)
        self.fds: list[int] = []
        self.maps: list[mmap.mmap] = []
        self.done: list[str] = []  # for the message of a failing test
        for number in range(30):
            self._put(tree / f"d{number % 3}" / f"e{number % 2}" / f"f{number}")
        for number in range(8):
            self._put(tree / f"g{number}")
        os.symlink("g0", tree / "l0")

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())
        while self.maps:
            self.maps.pop().close()

    def act(self) -> None:
        """One thing, whatever is possible now."""
        names = sorted(name for name in dir(type(self)) if name.startswith("do_"))
        name = self.random.choice(names)
        try:
            what = getattr(self, name)()
        except (IndexError, ValueError):
            return  # nothing there to do it to
        except OSError as error:
            if error.errno not in _USUAL:
                raise
            return
        self.done.append(f"{name[3:]} {what}")

    # -- what there is

    def _files(self, top: Path | None = None) -> list[Path]:
        found = (top or self.tree).rglob("*")
        return sorted(path for path in found if path.is_file() and not path.is_symlink())

    def _file(self, top: Path | None = None) -> Path:
        return self.random.choice(self._files(top))

    def _folder(self, top: Path | None = None) -> Path:
        top = top or self.tree
        return self.random.choice(sorted([top, *(p for p in top.rglob("*") if p.is_dir() and not p.is_symlink())]))

    def _inner(self) -> Path:
        return self.random.choice(sorted(p for p in self.tree.rglob("*") if p.is_dir() and not p.is_symlink()))

    def _name(self, top: Path | None = None) -> Path:
        return self._folder(top) / f"n{self.random.randrange(12)}"

    def _bytes(self) -> bytes:
        return bytes([self.random.randrange(256)]) * self.random.choice((1, 7, 4096, 5000))

    def _put(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_fifo():
            path.unlink()  # it would be opened when somebody reads from it
        path.write_bytes(self._bytes())
        return path

    def _same_size(self, path: Path) -> None:
        """Other content, with the size and the time that it had."""
        st = path.stat()
        with path.open("r+b") as file:
            file.write(bytes([self.random.randrange(256)]) * max(1, st.st_size))
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    # -- what can be done

    def do_write(self) -> Path:
        return self._put(self._file())

    def do_create(self) -> Path:
        return self._put(self._name())

    def do_keep_time_and_size(self) -> Path:
        path = self._file()
        self._same_size(path)
        return path

    def do_truncate(self) -> Path:
        path = self._file()
        os.truncate(path, self.random.randrange(20))
        return path

    def do_delete(self) -> Path:
        path = self._file()
        path.unlink()
        return path

    def do_delete_and_create(self) -> Path:
        path = self._file()
        path.unlink()
        return self._put(path)

    def do_hold(self) -> Path:
        path = self._file()
        self.fds.append(os.open(path, os.O_RDWR))
        return path

    def do_write_to_held(self) -> str:
        os.pwrite(self.random.choice(self.fds), self._bytes(), 0)
        return ""

    def do_let_go(self) -> str:
        os.close(self.fds.pop(self.random.randrange(len(self.fds))))
        return ""

    def do_map(self) -> Path:
        path = self._file()
        with path.open("r+b") as file:
            self.maps.append(mmap.mmap(file.fileno(), 0))
        return path

    def do_write_to_map(self) -> str:
        for mapped in self.maps:
            if not mapped.size():
                continue  # of the file, which was truncated: the system would end us
            mapped[0] = (mapped[0] + 1) % 256
            mapped.flush()  # or the next write would move no time
        return ""

    def do_unmap(self) -> str:
        self.maps.pop(self.random.randrange(len(self.maps))).close()
        return ""

    def do_unnamed_file(self) -> Path:
        """A file that gets its name when it is open already."""
        path = self._name()
        fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o644)
        os.write(fd, b"first")
        if _LIBC.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, bytes(path), 0x400):
            os.close(fd)
        else:
            self.fds.append(fd)
        return path

    def do_link_out(self) -> Path:
        path = self._file()
        os.link(path, self.outside / f"o{self.random.randrange(20)}")
        return path

    def do_write_outside(self) -> Path:
        path = self._file(self.outside)
        self._same_size(path)
        return path

    def do_hold_outside(self) -> Path:
        path = self._file(self.outside)
        self.fds.append(os.open(path, os.O_RDWR))
        return path

    def do_hold_by_a_name_that_goes(self) -> Path:
        path = self._file()
        os.link(path, gone := self.outside / "gone")
        self.fds.append(os.open(gone, os.O_RDWR))
        gone.unlink()
        return path

    def do_map_outside(self) -> Path:
        path = self._file(self.outside)
        with path.open("r+b") as file:
            self.maps.append(mmap.mmap(file.fileno(), 0))
        return path

    def do_delete_outside(self) -> Path:
        path = self._file(self.outside)
        path.unlink()
        return path

    def do_link_in(self) -> Path:
        os.link(self._file(self.outside), path := self._name())
        return path

    def do_link_inside(self) -> Path:
        os.link(self._file(), path := self._name())
        return path

    def do_rename(self) -> str:
        old, new = self._file(), self._name()
        os.rename(old, new)
        return f"{old} {new}"

    def do_rename_over(self) -> str:
        old, new = self._file(), self._file()
        os.rename(old, new)
        return f"{old} {new}"

    def do_rename_folder(self) -> str:
        old, new = self._inner(), self._name()
        os.rename(old, new)
        return f"{old} {new}"

    def do_move_out_and_back(self) -> Path:
        path = self._inner()
        os.rename(path, away := self.outside / "away")
        for file in self._files(away)[:2]:
            self._same_size(file)
        os.rename(away, path)
        return path

    def do_move_out(self) -> Path:
        path = self._inner()
        os.rename(path, self.outside / f"m{self.random.randrange(3)}")
        return path

    def do_move_in(self) -> Path:
        folders = sorted(p for p in self.outside.iterdir() if p.is_dir())
        os.rename(self.random.choice(folders), path := self._name())
        return path

    def do_exchange(self) -> str:
        one, other = self._inner(), self._file()
        _LIBC.renameat2(-100, bytes(one), -100, bytes(other), 2)
        return f"{one} {other}"

    def do_exchange_folders(self) -> str:
        one, other = self._inner(), self._inner()
        _LIBC.renameat2(-100, bytes(one), -100, bytes(other), 2)
        return f"{one} {other}"

    def do_exchange_with_outside(self) -> str:
        folders = sorted(p for p in self.outside.iterdir() if p.is_dir())
        one, other = self.random.choice(folders), self._inner()
        _LIBC.renameat2(-100, bytes(one), -100, bytes(other), 2)
        return f"{one} {other}"

    def do_move_into_new_folder(self) -> Path:
        path, new = self._inner(), self._name()
        new.mkdir()
        os.rename(path, new / "moved")
        return path

    def do_deep(self) -> Path:
        path = self._folder() / "x" / "y" / "z"
        path.mkdir(parents=True, exist_ok=True)
        return self._put(path / "w")

    def do_remove_folder(self) -> Path:
        path = self._inner()
        shutil.rmtree(path)
        return path

    def do_replace_folder(self) -> Path:
        path = self._inner()
        shutil.rmtree(path)
        self._put(path / "again")
        return path

    def do_swap_type(self) -> Path:
        path = self._file()
        path.unlink()
        kind = self.random.randrange(3)
        if kind == 0:
            self._put(path / "inside")
        elif kind == 1:
            os.symlink("nowhere", path)
        else:
            os.mkfifo(path)
        return path

    def do_mode(self) -> Path:
        path = self._file()
        path.chmod(self.random.choice((0o600, 0o644, 0o755)))
        return path

    def do_mode_of_folder(self) -> Path:
        path = self._folder()
        path.chmod(self.random.choice((0o700, 0o755, 0o2775)))
        return path

    def do_time(self) -> Path:
        path = self.random.choice((self._file, self._folder))()
        os.utime(path, ns=(1, self.random.randrange(10**18)))
        return path

    def do_attribute(self) -> Path:
        path = self.random.choice((self._file, self._folder))()
        os.setxattr(path, "user.reprieve", str(self.random.random()).encode())
        return path

    def do_symlink(self) -> Path:
        os.symlink(self.random.choice(("a", "b")), path := self._name())
        return path

    def do_time_of_symlink_outside(self) -> Path:
        path = self.outside / "link"
        if path.is_symlink():
            os.utime(path, ns=(1, self.random.randrange(10**18)), follow_symlinks=False)
        else:
            os.link(self.tree / "l0", path, follow_symlinks=False)
        return path

    def do_read(self) -> Path:
        path = self._file()
        path.read_bytes()
        return path
