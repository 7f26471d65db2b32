"""The directory that holds everything: made safely, checked at every opening.

    format      one line, written last: a home that has it is complete
    store.db    the database (db.py)
    packs/      content (packs.py)
    index/      caches of the file engine
    locks/      flock files (locks.py)
    witness/    newest entry of each timeline, kept beside the database
    threads/    agents' states, a database for each workspace that has some (thread_db.py)
    agents/     what the configuration files of coding agents held before our entries (agents/foreign.py)
    mail/       held messages (effects/mail.py)
    stand-ins/  for each workspace the programs that hold a run's mail in the place of `sendmail` (app/holding.py)
    mcp.token   what a client of `reprieve mcp --http` has to show (mcp/http.py)
    promises/   entries that are durable and not on their timeline yet, a file for each workspace (promises.py)
    tickets/    caches by which the next one is made
    helper      the socket of the resident helper, while there is one; `hooks`: for agents' hooks alone (cli/helper)
    tmp/        scratch; a file is complete before it gets its real name

Nothing here is readable for others at any moment: files are created with 0600 and directories with 0700 by the call
that creates them; stand-ins are executed and so have 0700. docs/format.md outranks this code.
"""

from __future__ import annotations

import os
import stat

from reprieve.errors import Misconfigured, StoreCorrupted, StoreFailed
from reprieve.store.faults import failed

VERSION = 1
_FORMAT_WORDS = "reprieve store "
_DIRECTORIES = ("packs", "index", "locks", "witness", "tmp")
_DATABASES = ("store.db", "store.db-journal", "effects.db", "effects.db-journal", "effects.key")
_SOCKETS = ("helper", "hooks")
_MADE_LATER = ("agents", "ballast", "format", "mail", "mcp.token", "promises", "stand-ins", "threads", "tickets")
_OURS = frozenset((*_DIRECTORIES, *_DATABASES, *_SOCKETS, *_MADE_LATER))


class Home:
    """A checked store directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_ready = False  # the format line is there: creation was completed

    def file(self, *names: str) -> str:
        """The path of something in the home."""
        return "/".join((self.path, *names))

    def make_parts(self) -> None:
        """Create what is missing of the directories and an empty database file. Safe to repeat after a kill.

        The caller holds the creation lock, so nobody else is between these steps.
        """
        try:
            unknown = sorted(set(os.listdir(self.path)) - _OURS)
            if unknown and not os.path.exists(self.file("store.db")):
                raise Misconfigured(
                    f"{self.path!r} holds other things and is no Reprieve store",
                    details=unknown[:5],
                    hints=["point REPRIEVE_HOME at a directory of its own"],
                )
            self.make_directories()
            if not os.path.lexists(self.file("store.db")):
                # Through a temporary name: closing a descriptor of a database that another thread has open would
                # drop that thread's locks (POSIX locks belong to the process).
                self.write("store.db", b"", durable=True)
            sync_directory(self.path)
        except OSError as exc:
            raise failed(exc, self.path, f"create the store {self.path!r}") from exc

    def make_directories(self) -> None:
        """Create the missing ones; they hold nothing whose loss could be mistaken for an empty store."""
        for name in _DIRECTORIES:
            make_directory(self.file(name))

    def complete(self) -> None:
        """Write the format line: from now on a missing or empty database is damage, not a new store."""
        try:
            self.write("format", f"{_FORMAT_WORDS}{VERSION}\n".encode(), durable=True)
        except OSError as exc:
            raise failed(exc, self.path, f"create the store {self.path!r}") from exc
        self.is_ready = True

    def write(self, name: str, data: bytes, *, durable: bool, mode: int = 0o600) -> None:
        """Replace a small file as a whole; durable: it is on disk when this returns. Raises OSError."""
        temporary = self.file("tmp", f"{name.replace('/', '.')}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            fd = create_file(temporary)
        except FileNotFoundError:
            self.make_directories()
            fd = create_file(temporary)
        try:
            try:
                write_all(fd, data, 0)
                if mode != 0o600:
                    os.fchmod(fd, mode)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, self.file(name))
        except OSError:
            os.unlink(temporary)
            raise
        if durable:
            sync_directory(os.path.dirname(self.file(name)))


def open_home(path: str, *, create: bool = True) -> Home:
    """Check the directory at path, or make it. A home that is not ready still has to be completed by its store."""
    home = Home(os.path.abspath(path))
    try:
        info = os.lstat(home.path)
    except FileNotFoundError:
        if not create:
            raise StoreFailed(
                f"there is no store at {home.path!r}", hints=["make one: reprieve init"], data={"path": home.path}
            ) from None
        try:
            _make_home(home.path)
            info = os.lstat(home.path)
        except OSError as exc:
            raise failed(exc, home.path, f"create the store {home.path!r}") from exc
    except OSError as exc:
        raise failed(exc, home.path, f"open the store {home.path!r}") from exc
    _check_directory(home.path, info)
    for name in _DIRECTORIES:
        _check_part(home.file(name))
    home.is_ready = _read_format(home)
    return home


def create_file(path: str) -> int:
    """A new file that only its owner can read, open for reading and writing. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    undo_umask(fd)
    return fd


def undo_umask(fd: int) -> None:
    """Give the owner back what a strange umask (0777) took away; it can only have taken, so nothing was exposed."""
    if os.fstat(fd).st_mode & 0o600 != 0o600:
        os.fchmod(fd, 0o600)


def write_all(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """pwrite until all is written: a short write is no error for the kernel, but a torn object for us."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return
    rest = memoryview(data)
    while done < len(rest):
        step = os.pwrite(fd, rest[done:], offset + done)
        if step == 0:
            raise OSError(28, "nothing more could be written")  # ENOSPC is the one known cause
        done += step


def sync_directory(path: str) -> None:
    """Make names in a directory durable: ext4 and others may otherwise lose a rename or a new file."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: str) -> None:
    """A directory that only its owner can open, unless it is there. Raises OSError, also if a link is there."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
        return
    if os.lstat(path).st_mode & 0o700 != 0o700:
        os.chmod(path, 0o700)


def _make_home(path: str) -> None:
    missing = [path]
    while not os.path.lexists(os.path.dirname(missing[-1])):
        missing.append(os.path.dirname(missing[-1]))
    for one in reversed(missing):
        make_directory(one)
        try:
            sync_directory(os.path.dirname(one))
        except PermissionError:
            continue  # a parent that may be passed but not read; its own owner answers for its durability


def _check_directory(path: str, info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise Misconfigured(
            f"the store {path!r} is a symbolic link; it must be the directory itself",
            hints=[f"REPRIEVE_HOME={os.path.realpath(path)}"],
        )
    if not stat.S_ISDIR(info.st_mode):
        raise Misconfigured(f"the store {path!r} is not a directory")
    if info.st_uid != os.geteuid():
        raise Misconfigured(
            f"the store {path!r} belongs to another user (uid {info.st_uid}, you are {os.geteuid()})",
            hints=["use a store of your own: REPRIEVE_HOME=<directory>", "or run as the user who owns it"],
        )
    if info.st_mode & 0o077:
        raise Misconfigured(
            f"the store {path!r} is open to other users (mode {stat.S_IMODE(info.st_mode):04o}, must be 0700)",
            hints=[f"chmod 700 {path}"],
        )


def _check_part(path: str) -> None:
    """A part that is missing is made when it is needed; one that is a link would lead our writes elsewhere."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise failed(exc, path, f"open {path!r}") from exc
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise Misconfigured(
            f"{path!r} is not the store's own directory; nothing is read or written through it",
            hints=["see what it is: ls -ld " + path, "put the directory itself back in its place"],
        )


def _read_format(home: Home) -> bool:
    path = home.file("format")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise failed(exc, path, "read the store's format") from exc
    try:
        line = os.read(fd, 200)
    except OSError as exc:
        raise failed(exc, path, "read the store's format") from exc
    finally:
        os.close(fd)
    text = line.decode("utf-8", "replace").split("\n")[0]
    number, _, needs = text.removeprefix(_FORMAT_WORDS).partition(" ")
    if not text.startswith(_FORMAT_WORDS) or not number.isdecimal():
        raise StoreCorrupted(f"{path!r} is damaged: it says {text[:60]!r}", hints=[f"it should read: {_FORMAT_WORDS}1"])
    if int(number) != VERSION:
        raise StoreFailed(
            f"the store {home.path!r} has format {number}; this Reprieve knows format {VERSION}",
            hints=[f"use the Reprieve that wrote it{f' ({needs})' if needs else ''}: pip install --upgrade reprieve"],
            data={"format": int(number), "known": VERSION},
        )
    if not os.path.lexists(home.file("store.db")):
        raise StoreCorrupted(
            f"the store {home.path!r} has lost its database (store.db)",
            hints=["restore it from a backup; the content in packs/ is untouched"],
        )
    return True
