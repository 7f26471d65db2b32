"""Programs and scripts that lie where an agent works: frozen by hash with the inverse that names them.

    inverse["scripts"] = [{"path": ..., "sha256": ...}]

A person who records `./stop.sh` means what is in it at that time. An agent can write another text into it, and the
undo of one's own effect would run that. What a program reads beside its script (a Makefile, a module, a settings file)
is not looked at.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reprieve.model.effect import Json

_STARTERS = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "fish", "env", "xargs", "perl", "ruby", "node", "php", "lua", "awk", "sudo",
     "ssh", "nohup", "timeout", "busybox", "make", "find", "parallel", "script", "eval", "su", "doas", "nice", "setsid")
)  # fmt: skip
_CODE = (".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".awk")


def starts_others(argv: Sequence[object]) -> bool:
    """Whether a program runs what its arguments say: a shell, an interpreter, a wrapper."""
    name = os.path.basename(str(argv[0])) if argv else ""
    return name in _STARTERS or name.startswith("python")


def frozen(commands: Sequence[Sequence[str]], *, cwd: str, within: Sequence[str]) -> list[Json]:
    """The programs and scripts of these commands that lie in one of the trees, with their hashes. Raises OSError."""
    trees = {form for tree in within for form in (os.path.abspath(tree), os.path.realpath(tree))}
    paths = dict.fromkeys(path for argv in commands for path in _code_of(argv, cwd) if _is_in(path, trees))
    return [{"path": path, "sha256": _hash(path)} for path in paths]


def changed(inverse: Mapping[str, object]) -> str:
    """The first script that is no longer what it was, in words; "" if all are."""
    scripts = inverse.get("scripts")
    for script in scripts if isinstance(scripts, list) else ():
        path = str(script["path"])
        try:
            is_same = _hash(path) == script["sha256"]
        except OSError as e:
            return f"{path} can't be read: {e.strerror}"
        if not is_same:
            return f"{path} was changed since this was recorded"
    return ""


def _code_of(argv: Sequence[str], cwd: str) -> Iterator[str]:
    """The program, and what an interpreter or wrapper is given to run: the first file, and others that look like it."""
    yield argv[0]
    if not starts_others(argv):
        return
    is_first = True
    for word in argv[1:]:
        path = os.path.join(cwd, word)
        if os.path.isfile(path):
            if is_first or word.endswith(_CODE) or os.access(path, os.X_OK):
                yield os.path.normpath(path)
            is_first = False


def _is_in(path: str, trees: set[str]) -> bool:
    """By its name or by where that leads: both can be written to by who works in the tree."""
    forms = (os.path.abspath(path), os.path.realpath(path))
    return any(form.startswith(tree.rstrip("/") + "/") for form in forms for tree in trees)


def _hash(path: str) -> str:
    from hashlib import file_digest

    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()
