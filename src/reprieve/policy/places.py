"""Say what writing to, or removing, a path means: inside the workspace the file engine takes it back. Pure.

Paths are compared as text unless a `resolve` is given (the gate passes one that follows the links on disk).
"""

from __future__ import annotations

import posixpath

from reprieve.model.value import Value
from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, READ, RESTORABLE, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.policy.words import Word

_DEVICES = ("/dev/null", "/dev/zero", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/full")
# What git runs by itself: a file that is put there is a program that nobody read.
_RUN_BY_GIT = ("/.git/hooks", "/.git/config", "/.git/info/attributes", "/.husky")

WRITE, REMOVE, META = "writes", "removes", "changes"


class Places(Value):
    """Where the command runs: the workspace, what else is tracked, and the directories it may be in.

    `cwds`: all directories that may be the current one at this point of the script; None among them: not known.
    `is_remote`: on another machine or in a container, where no path is ours.
    """

    root: str
    cwds: tuple[str | None, ...]
    tracked: tuple[str, ...] = ()
    resolve: Callable[[str], str] | None = None
    is_remote: bool = False
    is_folder: Callable[[str], bool] | None = None  # whether a folder is there now: going there will succeed
    made: tuple[str, ...] = ()  # names of links that the line itself makes: where they will lead is not on disk yet

    def holds(self, path: str, *, itself: bool = False) -> bool:
        """True if what is at the (absolute, normal) path comes back with a rollback."""
        if self.is_remote:
            return False
        return _below(path, self.root, itself=itself) or any(_below(path, one, itself=True) for one in self.tracked)

    @property
    def here(self) -> str:
        """The one directory that is the current one; "" where that is not certain."""
        return (self.cwds[0] or "") if len(self.cwds) == 1 and not self.is_remote else ""

    def moved(self, target: Word, *, surely: bool) -> Places:
        """After `cd target`: there, or, if that may fail, possibly still here."""
        new: list[str | None] = []
        is_there = self.is_folder is not None and not self.is_remote
        for cwd in self.cwds:
            if target.text is None or target.is_glob or target.text == "-":
                new.append(None)
            elif target.text.startswith("/"):
                new.append(posixpath.normpath(target.text))
            else:
                new.append(None if cwd is None else posixpath.normpath(posixpath.join(cwd, target.text)))
        is_there = is_there and all(one is not None and self.is_folder(one) for one in new)  # type: ignore[misc]
        if not surely and not is_there:
            new += self.cwds
        unique = tuple(dict.fromkeys(new))
        return self.replace(cwds=unique if len(unique) <= 8 else (None,))


def _below(path: str, top: str, *, itself: bool) -> bool:
    if path == top:
        return itself
    return path.startswith(top if top.endswith("/") else top + "/")


def touch(word: Word, places: Places, *, verb: str = WRITE, is_content: bool = False) -> tuple[str, str]:
    """The class of changing what is at a path, and why. `is_content`: what is in the folder, not the folder itself."""
    found, reason = READ, ""
    for cwd in places.cwds:
        one, why = _touch(word, cwd, places, verb, is_content)
        if rank(one) > rank(found):
            found, reason = one, why
    return found, reason


def _touch(word: Word, cwd: str | None, places: Places, verb: str, is_content: bool) -> tuple[str, str]:
    text = word.text
    if text is None:
        return IRREVERSIBLE, f"{verb} a path that only the running shell knows"
    if "\0" in text:
        return OPAQUE, "a path holds a NUL"
    if text in _DEVICES or text.startswith("/dev/fd/"):
        return READ, ""
    if text.startswith(("/dev/", "/proc/", "/sys/")):
        return IRREVERSIBLE, f"{verb} {text}, a device"
    if places.is_remote:
        return IRREVERSIBLE, f"{verb} {text} on another machine"
    if not text.startswith("/") and cwd is None:
        return IRREVERSIBLE, f"{verb} {text} in a folder that is not known"
    path = text if text.startswith("/") else posixpath.join(cwd or "/", text)
    if places.made and _is_through(path, places, verb):
        return IRREVERSIBLE, f"{verb} {_shown(text)} through a link that the same line makes"
    for one in _meanings(path) if word.is_glob else (path,):
        whole = _tidy(one, places)
        if is_content or (word.is_glob and whole != _tidy(path, places)):
            whole = posixpath.join(whole, "\x01")  # some name in there
        real = _resolved(whole, places, verb)
        if not places.holds(real, itself=verb != REMOVE):
            shown = "the workspace itself" if real == places.root else f"{_shown(text)}, outside the workspace"
            return IRREVERSIBLE, f"{verb} {shown}"
        if verb == WRITE and any(f"{part}/" in f"{real}/" for part in _RUN_BY_GIT):
            return OPAQUE, f"writes {text}, which git runs or obeys"
    return RESTORABLE, f"{verb} {_shown(text)} in the workspace"


def _is_through(path: str, places: Places, verb: str) -> bool:
    """Whether a path may lead through one of the line's own links. A link that is removed is itself what goes."""
    from fnmatch import fnmatchcase

    below = path[len(places.root) :] if path.startswith(f"{places.root}/") else path
    # folded: on some systems the case of a name does not matter
    parts = [part.casefold() for part in below.split("/") if part not in ("", ".")]
    names = [name.casefold() for name in places.made]
    passed = parts[:-1] if verb == REMOVE and parts[-1:] != [".."] else parts
    return any(fnmatchcase(name, part) or fnmatchcase(part, name) for part in passed for name in names)


def _shown(text: str) -> str:
    """A \\1 stands for some name in a folder."""
    return "files" if text == "\x01" else text.replace("\x01", "…")


def _tidy(path: str, places: Places) -> str:
    """Without empty parts. A `..` is left to whoever follows links: behind one it is the parent of where that leads."""
    if places.resolve is None or ".." not in path.split("/"):
        return posixpath.normpath(path)
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _resolved(path: str, places: Places, verb: str) -> str:
    """With links followed: all of it where bytes are written, but a link that is removed is itself what goes."""
    if places.resolve is None:
        return path
    if verb == REMOVE and not path.endswith("/.."):
        parent, name = posixpath.split(path)
        return posixpath.join(places.resolve(parent), name)
    return places.resolve(path)


def _meanings(path: str) -> tuple[str, ...]:
    """The folders that a pattern reaches: the certain part before it, and the parent where `.*` may mean `..`."""
    certain: list[str] = []
    parts = path.split("/")
    climbs = False
    for part in parts:
        if any(ch in "*?[" for ch in part):
            climbs = part.startswith((".", "["))
            break
        certain.append(part)
    rest = parts[len(certain) + 1 :]
    folder = "/".join(certain) or "/"
    if ".." in rest or climbs:
        up = 1 + rest.count("..") + (1 if climbs else 0)
        return (folder, posixpath.normpath(posixpath.join(folder, *[".."] * up)))
    return (folder,)
