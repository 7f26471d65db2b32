"""Change files that belong to somebody else: read, show the difference, back up, write atomically.

    read ──> plan (pure: `hookfile`, `fenced`, or an agent's own) ──> diff shown ──> apply:
        is the file still what was read?
        record with a copy of what was there first (0600, fsync)
        temporary file in the same folder, fsync, rename, fsync of the folder

The record keeps what a file held before we first wrote to it, so that taking our entry out can give back its exact
bytes. Only the person's own, ordinary, writable files are touched.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence

from reprieve.errors import Conflict, Misconfigured
from reprieve.model.value import Value

_TEMP = ".reprieve-new"
MCP = "mcp"  # folder inside that of the hooks' records: one file may hold both, each remembers what was there before it


class Foreign(Value):
    """A file as found. `text` is None if it is not there. `real_path` is where the bytes are, after links."""

    path: str
    real_path: str
    text: str | None = None
    notes: tuple[str, ...] = ()


class Change(Value):
    """One file, before and after. `new` None: the file goes away. `problem`: why this one can't be done.

    `had_ours`: an entry of ours was in `old` already.
    """

    agent: str
    scope: str
    path: str
    real_path: str
    old: str | None = None
    new: str | None = None
    is_executable: bool = False
    is_removal: bool = False
    had_ours: bool = False
    notes: tuple[str, ...] = ()
    problem: Misconfigured | None = None

    @property
    def is_needed(self) -> bool:
        return self.problem is None and self.old != self.new

    def diff(self) -> str:
        """Unified, for people."""
        import difflib

        was = "" if self.old is None else self.old
        now = "" if self.new is None else self.new
        lines = difflib.unified_diff(
            was.splitlines(keepends=True),
            now.splitlines(keepends=True),
            self.path if self.old is not None else "/dev/null",
            self.path if self.new is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


class Record(Value):
    """What a file held before our first entry, what we wrote last, and which folders we made for it."""

    agent: str
    scope: str
    path: str
    before: str | None
    after: str | None
    folders: tuple[str, ...] = ()


def read(path: str) -> Foreign:
    """Read a configuration file, whatever it is; raises Misconfigured if we should not write to it."""
    notes = []
    real = os.path.realpath(path)
    if os.path.islink(path):
        notes.append(f"{path!r} is a link; the change goes to {real!r}")
    try:
        status = os.stat(real)
    except FileNotFoundError:
        if os.path.islink(path) and not os.path.isdir(os.path.dirname(real)):
            raise Misconfigured(
                f"{path!r} is a link to {real!r}, whose folder does not exist", hints=["repair or remove the link"]
            ) from None
        return Foreign(path=path, real_path=real, notes=tuple(notes))
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise Misconfigured(f"{path!r} is not a file", hints=["move it away, then run the same command again"])
    if status.st_uid != os.geteuid():
        raise Misconfigured(
            f"{path!r} belongs to another user (uid {status.st_uid}); it was left alone",
            hints=["run the same command as that user, or choose another --scope"],
        )
    if not status.st_mode & stat.S_IWUSR or not os.access(os.path.dirname(real), os.W_OK):
        raise Misconfigured(
            f"{path!r} is read-only; it was left alone",
            hints=[f"make it writable (chmod u+w {real}), then run the same command again"],
        )
    if status.st_nlink > 1:
        notes.append(f"{path!r} has {status.st_nlink} names (hard links); the others keep the old text")
    try:
        with open(real, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(
            f"{path!r} is not UTF-8 text; it was left alone",
            hints=["save it as UTF-8, then run the same command again"],
        ) from error
    return Foreign(path=path, real_path=real, text=text, notes=tuple(notes))


def _unreadable(path: str, error: OSError) -> Misconfigured:
    return Misconfigured(f"{path!r} can't be read: {error.strerror}", hints=["check its permissions"])


def apply(change: Change, *, records: str) -> None:
    """Carry out one change. `records` is our own folder for backups.

    Installing makes the record, or keeps the one of an earlier installation, so that repeated installing does not
    forget the first state; removing drops it. Raises Conflict if the file is no longer what the plan was made from.
    """
    if change.problem is not None:
        raise change.problem
    if not change.is_needed:
        return
    now = read(change.path)
    if now.text != change.old or now.real_path != change.real_path:
        raise Conflict(
            f"{change.path!r} changed in the meantime; it was left alone", hints=["run the same command again"]
        )
    known = load_record(records, change.path)
    folder = os.path.dirname(change.real_path)
    try:
        if change.is_removal:
            if change.new is None:
                os.unlink(change.real_path)
                _sync_folder(folder)
                _hand_over(records, change.path, _remove_folders(known.folders if known else ()))
            else:
                _write(change.real_path, change.new.encode("utf-8"))
            forget_record(records, change.path)
        elif change.new is not None:
            made = _make_folders(folder)
            # A record of an installation that somebody has undone by hand says nothing about today's file.
            is_same = known is not None and change.had_ours
            record = Record(
                agent=change.agent,
                scope=change.scope,
                path=change.path,
                before=known.before if known and is_same else change.old,
                after=change.new,
                folders=(*(f for f in (known.folders if known else ()) if f not in made), *made),
            )
            _save_record(records, record)
            _write(change.real_path, change.new.encode("utf-8"), is_executable=change.is_executable)
    except OSError as error:
        raise Misconfigured(
            f"{change.path!r} can't be written: {error.strerror}", hints=["check permissions and free space"]
        ) from error


def _write(path: str, data: bytes, *, is_executable: bool = False) -> None:
    """Replace a file atomically; mode, owner and extended attributes stay."""
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}{_TEMP}-{os.getpid()}")
    try:
        old: os.stat_result | None = os.stat(path)
    except FileNotFoundError:
        old = None
    # A settings file may hold keys: never wider open than the old one, not for an instant.
    mode = stat.S_IMODE(old.st_mode) if old else (0o777 if is_executable else 0o666)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o700 if old else mode)
    try:
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                if old:
                    _keep_attributes(path, file.fileno(), old)
                os.fsync(file.fileno())
            os.rename(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
    finally:
        _sync_folder(folder)


def _keep_attributes(path: str, fd: int, old: os.stat_result) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(fd, -1, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))
    if hasattr(os, "listxattr"):
        try:
            for name in os.listxattr(path):
                os.setxattr(fd, name, os.getxattr(path, name))
        except OSError:  # labels that only the system may set; a file without them works as well
            return


def _make_folders(path: str) -> tuple[str, ...]:
    """Make a folder and its parents; says which were missing, outermost first."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder)
    return tuple(reversed(missing))


def _remove_folders(folders: Sequence[str]) -> tuple[str, ...]:
    """Folders that we made go again, if nobody put anything into them; says which did not, outermost first."""
    for number, folder in reversed(list(enumerate(folders))):
        try:
            os.rmdir(folder)
        except FileNotFoundError:  # gone already; the one around it may be there still
            continue
        except OSError:  # not empty: then it is not ours to remove
            return tuple(folders[: number + 1])
    return ()


def _hand_over(records: str, path: str, folders: Sequence[str]) -> None:
    """Folders that we made and that hold another file of ours go with that one: its record knows of them now."""
    is_mcp = os.path.basename(records) == MCP
    for place in (records, os.path.dirname(records) if is_mcp else os.path.join(records, MCP)) if folders else ():
        for record in all_records(place):
            real = os.path.realpath(record.path)
            held = [folder for folder in folders if real.startswith(os.path.join(folder, ""))]
            if held and os.path.exists(real) and (place, record.path) != (records, path):
                more = [folder for folder in record.folders if folder not in held]
                _save_record(place, record.replace(folders=(*held, *more)))
                return


def _sync_folder(path: str) -> None:
    # The rename itself is durable only when the folder is: ext4 may otherwise lose it.
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _record_path(records: str, path: str) -> str:
    import hashlib

    return os.path.join(records, hashlib.sha256(os.fsencode(path)).hexdigest()[:32] + ".json")


def _save_record(records: str, record: Record) -> None:
    os.makedirs(records, mode=0o700, exist_ok=True)
    data = json.dumps({name: getattr(record, name) for name in Record._fields}, indent=1)
    path = _record_path(records, record.path)
    temp = f"{path}{_TEMP}-{os.getpid()}"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temp, path)
    _sync_folder(records)


def load_record(records: str, path: str) -> Record | None:
    """The record of a file, None if there is none that can be read."""
    return _load(_record_path(records, path), path)


def all_records(records: str) -> list[Record]:
    """Every file that we have written to and not taken our entry out of."""
    try:
        names = sorted(os.listdir(records))
    except FileNotFoundError:
        return []
    found = [_load(os.path.join(records, name), None) for name in names if name.endswith(".json")]
    return [record for record in found if record is not None]


def forget_record(records: str, path: str) -> None:
    """Our entry is out of the file; nothing to remember any more."""
    try:
        os.unlink(_record_path(records, path))
    except FileNotFoundError:
        return


def _load(name: str, path: str | None) -> Record | None:
    try:
        with open(name, encoding="ascii") as file:
            data = json.load(file)
        record = Record(**{**data, "folders": tuple(data["folders"])})
    except (OSError, ValueError, TypeError, KeyError):
        # Without a record, removing still works: it takes out our entry and the lists that only we used.
        return None
    return record if path is None or record.path == path else None
