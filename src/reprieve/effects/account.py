"""The account that a command acts in: kept with its effect, so that its inverse runs there or not at all.

    kept = {"variables": {"AWS_PROFILE": "staging"}, "secrets": {"AWS_SECRET_ACCESS_KEY": keyed fingerprint},
            "files": [{"path": ..., "take": ..., "chosen": [...], "name": "", "fingerprint": ...}], "home": ...}

Variables are set again for the inverse. Secrets come from the environment of whoever undoes, and must be the same; so
must the parts of the files that lead to the account. Nothing else that selects an account is passed on.
"""

from __future__ import annotations

import os

from reprieve.effects.account_files import TAKES, files_of
from reprieve.errors import Refused
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from reprieve.model.effect import Json

    Sign = Callable[[bytes], str]

    class File(Protocol):
        """As declared in the catalog."""

        @property
        def path(self) -> str: ...
        @property
        def take(self) -> str: ...
        @property
        def by(self) -> tuple[str, ...]: ...

    class Declared(Protocol):
        """What the catalog says of a program."""

        @property
        def variables(self) -> tuple[str, ...]: ...
        @property
        def secrets(self) -> tuple[str, ...]: ...
        @property
        def never(self) -> tuple[str, ...]: ...
        @property
        def files(self) -> Sequence[File]: ...
        @property
        def switches(self) -> tuple[tuple[str, ...], ...]: ...


_INERT = ("text", "git")  # what is read so can't make the programs run others


class Given(Value):
    """How a command was started: its words, its folder, and what the text before it sets in its environment."""

    words: tuple[str, ...]  # the program with its global and carried options
    sub: tuple[str, ...]
    cwd: str
    set: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()  # sudo


def account_of(
    declared: Declared | None,
    given: Given,
    *,
    environ: Mapping[str, str],
    sign: Sign,
    is_secret: Callable[[str, str], bool],
    trees: Sequence[str] = (),
) -> Json:
    """The account of a command that is about to run. Raises Refused if an inverse could not be run there.

    `is_secret`: whether a variable of that name and value is a secret whatever the catalog says. `trees`: where an
    agent works.
    """
    if declared is None:
        program = os.path.basename(given.words[0])
        raise Refused(f"the catalog doesn't declare what selects the account of {program} (programs.{program}.account)")
    if given.launcher and (declared.variables or declared.secrets or declared.files):
        raise Refused(f"{given.launcher[0]} runs it as another user, whose accounts can't be read")
    now = {**environ, **dict(given.set)}
    home = now.get("HOME", "")
    for name in now:
        if _is_one_of(name, declared.never):
            raise Refused(f"{name} is set, which changes where {os.path.basename(given.words[0])} acts")
    variables, secrets = dict[str, object](), dict[str, object]()
    for name, value in sorted(now.items()):
        if not value:
            continue  # programs take it for one that is not set
        if _is_one_of(name, declared.variables) and not is_secret(name, value):
            variables[name] = value
        elif _is_one_of(name, (*declared.variables, *declared.secrets)):
            if name in dict(given.set):
                raise Refused(f"the command line sets {name}, a secret, which the journal does not keep")
            secrets[name] = sign(value.encode("utf-8", "surrogateescape"))
    # a command that changes the files themselves is undone wherever they are
    is_switch = any(given.sub[: len(words)] == words for words in declared.switches)
    files: list[object] = []
    for file in declared.files if not is_switch else ():
        chosen = _chosen(file.by, given.words, now)
        path, by = _path(file.path, given.words, now, home)
        path = _absolute(path, given.cwd)
        if (
            by
            and file.take not in _INERT
            and any(_is_below(part, tree) for part in path.split(os.pathsep) for tree in trees)
        ):
            raise Refused(f"{by} names a file in the workspace, where an agent can change what it makes programs run")
        name, decides = TAKES[file.take](path, chosen, home)
        entry = {"path": path, "take": file.take, "chosen": chosen, "name": name, "fingerprint": sign(decides)}
        files.append({key: value for key, value in entry.items() if value})
    return {"variables": variables, "secrets": secrets, "files": files, "home": home}


def differs(kept: Json, *, environ: Mapping[str, str], sign: Sign) -> str:
    """What is different now, and what to do about it; "" if an inverse would run in the same account."""
    for name, known in _mapping(kept.get("secrets")).items():
        value = environ.get(name)
        if value is None:
            return f"{name} is not set here, and the account needs it. Set it as it was then, and run this again"
        if sign(value.encode("utf-8", "surrogateescape")) != known:
            return (
                f"{name} has another value than when the effect was made, so this may be another account."
                " Set it as it was then, and run this again"
            )
    for file in _files(kept):
        path, chosen = str(file["path"]), [str(one) for one in _list(file.get("chosen"))]
        name, decides = TAKES[str(file["take"])](path, chosen, str(kept.get("home") or ""))
        if sign(decides) != file.get("fingerprint"):
            was = str(file.get("name") or "")
            led = f" (it chose {was} then, and {name or 'nothing'} now)" if was != name else ""
            return (
                f"{path} leads to another account than when the effect was made, or to the same one with other"
                f" credentials{led}. Put it back as it was, and run this again; or undo this one by hand"
            )
    return ""


def environment_of(kept: Json, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a program act in that account."""
    found = {name: str(value) for name, value in _mapping(kept.get("variables")).items()}
    found |= {name: environ[name] for name in _mapping(kept.get("secrets")) if name in environ}
    return {"HOME": str(kept["home"]), **found} if kept.get("home") else found


def words_of(inverse: Mapping[str, object] | None) -> str:
    """The account as people know it: AWS_PROFILE=staging, ~/.kube/config: prod. "" if nothing names it."""
    kept = (inverse or {}).get("account")
    if not isinstance(kept, dict):
        return ""
    parts = [f"{name}={value}" for name, value in _mapping(kept.get("variables")).items()]
    parts += [f"{name} (not shown)" for name in _mapping(kept.get("secrets"))]
    home = str(kept.get("home") or "\0").rstrip("/") + "/"
    for file in _files(kept):
        if file.get("name"):
            path = str(file["path"])
            parts.append(f"{'~/' + path[len(home) :] if path.startswith(home) else path}: {file['name']}")
    return ", ".join(parts)


def stamps(kept: Json) -> list[object]:
    """When the files were last written to: a command line may turn the account over, and back."""
    found: list[object] = []
    for file in _files(kept):
        if file["take"] == "git":
            continue  # git writes to its configuration when it pushes; where remotes are is compared
        for path in files_of(str(file["take"]), str(file["path"])):
            try:
                stat = os.stat(path)
                found.append([path, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size])
            except OSError:
                found.append([path])
    return found


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names it (NAME, PREFIX*) and no other one takes it out (!NAME, !PREFIX*)."""
    fit = [one for one in patterns if _fits(name, one.removeprefix("!"))]
    return bool(fit) and not any(one.startswith("!") for one in fit)


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _option(name: str, words: Sequence[str]) -> str:
    for at, word in enumerate(words):
        if word == name and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _chosen(by: Sequence[str], words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """What options say; else what variables say, all of them: programs differ in which of two counts."""
    options = [value for name in by if name.startswith("-") and (value := _option(name, words))]
    return options[:1] or [value for name in by if not name.startswith("-") and (value := environ.get(name, ""))]


def _path(template: str, words: Sequence[str], environ: Mapping[str, str], home: str) -> tuple[str, str]:
    """`${NAME:-default}rest` with the value in it, and the name that it is from, "" for the default."""
    if not template.startswith("${"):
        return (os.path.join(home, template[2:]) if template.startswith("~/") else template), ""
    end = template.rindex("}")
    name, _, default = template[2:end].partition(":-")
    value = _option(name, words) if name.startswith("-") else environ.get(name, "")
    start, by = (value, name) if value else _path(default, words, environ, home)
    return start + template[end + 1 :], by


def _absolute(path: str, cwd: str) -> str:
    return os.pathsep.join(os.path.normpath(os.path.join(cwd, part)) for part in path.split(os.pathsep) if part)


def _is_below(path: str, tree: str) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(tree)
    return real == top or real.startswith(top.rstrip("/") + "/")


def _files(kept: Mapping[str, object]) -> list[dict[str, object]]:
    return [dict(file) for file in _list(kept.get("files")) if isinstance(file, dict)]


def _mapping(value: object) -> dict[str, object]:
    return {str(name): one for name, one in value.items()} if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
