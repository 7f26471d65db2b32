"""Judge one call of a tool before it runs: its class, and by the mode whether it runs, waits, or is refused.

For the hook and the gateways. Only a shell command has its text read (and loads the parser and the catalog for that);
what no table knows counts as irreversible. Reads the disk for one thing: where links lead.
"""

from __future__ import annotations

import os

from reprieve.model.value import Value
from reprieve.policy.annotations import with_annotations
from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, READ, RESTORABLE
from reprieve.policy.decide import ASSIST, Circumstances, decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.policy.catalog import Catalog, CommandMatch
    from reprieve.policy.scene import SimpleCommand


class Verdict(Value):
    """What was found and what is to happen. `decision`: run, ask, hold or refuse. `matched`: rules with an inverse."""

    cls: str
    decision: str
    reason: str = ""
    hints: tuple[str, ...] = ()
    matched: tuple[CommandMatch, ...] = ()
    rules: tuple[str, ...] = ()
    commands: tuple[SimpleCommand, ...] = ()  # of a shell's line, with the folder that each runs in


# Tools of coding agents that have no command: what they do is in their name. Lower case, without separators.
_READERS = frozenset((
    "read", "readfile", "readmanyfiles", "glob", "grep", "ls", "list", "listdir", "listdirectory", "search",
    "searchfiles",
    "filesearch", "codebasesearch", "searchfilecontent", "view", "viewfile", "webfetch", "websearch", "googlewebsearch",
    "fetch", "notebookread", "todoread", "todowrite", "todo", "think", "task", "agent", "exitplanmode",
    "askuserquestion",
    "bashoutput", "taskoutput", "diagnostics", "readlints", "skill", "toolsearch",
))  # fmt: skip
_WRITERS = frozenset((
    "write", "writefile", "edit", "editfile", "multiedit", "replace", "replacefilecontent", "createfile", "create",
    "applypatch", "applydiff", "strreplace", "strreplacebasededittool", "strreplaceeditor", "notebookedit", "insert",
    "deletefile", "delete", "searchreplace", "writetofile", "replaceinfile", "patch",
))  # fmt: skip
_PATHS = ("file_path", "path", "filePath", "target_file", "notebook_path", "filename", "absolute_path", "TargetFile")


def judge_call(
    tool_name: str,
    arguments: Mapping[str, object],
    *,
    root: str,
    cwd: str,
    mode: str = ASSIST,
    catalog: Catalog | None = None,
    catalog_dirs: Sequence[str] = (),
    tracked: Sequence[str] = (),
    annotations: Mapping[str, object] | None = None,
    is_trusted: bool = False,
    circumstances: Circumstances | None = None,
    trusted_commands: Sequence[str] = (),
) -> Verdict:
    """The verdict for a call. Nothing in `arguments` but the command and the paths is looked at: not what they claim.

    `trusted_commands`: command lines, or beginnings of them up to a word, that a person declared to be restorable in
    their own configuration (`pytest`, `npm test`); never from the tree.
    """
    text = command_of(arguments)
    if text is not None:
        return _shell(
            text, root, cwd, mode, catalog, catalog_dirs, tracked, circumstances, trusted_commands, annotations
        )
    name = tool_name.rpartition("__")[2].replace("_", "").replace("-", "").replace(".", "").lower()
    own: str | None = None
    why = f"nothing is known of the tool {tool_name}"
    if "__" not in tool_name and annotations is None:
        if name in _READERS:
            own, why = READ, ""
        elif name in _WRITERS:
            own, why = _file_class(arguments, root, cwd, tracked)
    if own is None and annotations:
        why = f"the tool {tool_name} is its server's word alone"
    cls = with_annotations(own, annotations, is_trusted=is_trusted)
    decision = decide(cls, mode=mode, circumstances=circumstances, why=why if cls not in (READ, RESTORABLE) else "")
    return Verdict(cls, decision.verb, decision.reason, decision.hints)


def command_of(arguments: Mapping[str, object]) -> str | None:
    """The command line of a shell tool's arguments, or None if there is none."""
    import shlex

    for name in ("command", "cmd", "script", "CommandLine", "commandLine"):
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return shlex.join(value)
    return None


def _shell(
    text: str,
    root: str,
    cwd: str,
    mode: str,
    catalog: Catalog | None,
    catalog_dirs: Sequence[str],
    tracked: Sequence[str],
    circumstances: Circumstances | None,
    trusted: Sequence[str],
    annotations: Mapping[str, object] | None,
) -> Verdict:
    try:
        from reprieve.policy.catalog import load
        from reprieve.policy.shell import read_shell

        reading = read_shell(
            text, root=os.path.realpath(root), cwd=os.path.realpath(cwd), catalog=catalog or load(catalog_dirs),
            tracked=[os.path.realpath(path) for path in tracked], resolve=os.path.realpath, is_folder=os.path.isdir,
            variables={"HOME": os.path.expanduser("~")},
        )  # fmt: skip
    except ImportError as missing:
        decision = decide(OPAQUE, mode=mode, circumstances=circumstances, why=f"{missing.name} is not installed")
        return Verdict(OPAQUE, decision.verb, decision.reason, (f"pip install {missing.name}", *decision.hints))
    cls, why = reading.cls, "; ".join(reading.reasons[:3])
    if cls == OPAQUE and _is_trusted(text, trusted):
        cls, why = RESTORABLE, "declared harmless in the configuration"
    cls = with_annotations(cls, annotations)
    decision = decide(cls, mode=mode, circumstances=circumstances, why=why)
    matched = tuple(command.match for command in reading.commands if command.match is not None)
    rules = tuple(dict.fromkeys(command.rule for command in reading.commands if command.rule))
    return Verdict(cls, decision.verb, decision.reason, decision.hints, matched, rules, reading.commands)


def _is_trusted(text: str, trusted: Sequence[str]) -> bool:
    """A whole line, or its beginning up to a word; a line with any syntax of the shell is only trusted as a whole."""
    line = " ".join(text.split())
    if line in trusted:
        return True
    if any(ch in text for ch in ";&|<>$`(){}\n\\!*?[]#~'\""):
        return False
    return any(line.startswith(f"{one} ") for one in trusted)


def _file_class(arguments: Mapping[str, object], root: str, cwd: str, tracked: Sequence[str]) -> tuple[str, str]:
    paths = [value for name in _PATHS if isinstance(value := arguments.get(name), str) and value]
    tops = [os.path.realpath(root), *(os.path.realpath(path) for path in tracked)]
    for path in paths:
        real = os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
        if not any(real == top or real.startswith(top.rstrip("/") + "/") for top in tops):
            return IRREVERSIBLE, f"writes {path}, outside the workspace"
    return RESTORABLE, ""
