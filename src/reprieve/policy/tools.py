"""Judge one call of an MCP server's tool, and find what takes it back. Reads the disk for one thing: where links lead.

    catalog rule?   read ─▶ pass │ files, all inside ─▶ restorable │ its class │ files outside ─▶ irreversible
    no rule         says that it only reads ─▶ read in assist; in autopilot only of a server that a person trusts
                    else irreversible, also without any annotation

The catalog knows servers by the command that a person starts, never by the name that a server gives itself.
"""

from __future__ import annotations

import os
import re

from reprieve.model.value import Value
from reprieve.policy.annotations import claimed, with_annotations
from reprieve.policy.classes import IRREVERSIBLE, READ, RESTORABLE, raised
from reprieve.policy.decide import AUTOPILOT, decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reprieve.policy.catalog import ToolRule

    Json = dict[str, object]

# what starts another program: the server's own name is the first word after it that is no option
_LAUNCHERS = ("npx", "bunx", "uvx", "pnpx", "pipx", "node", "bun", "deno", "uv", "python", "python3", "env")
_WITHIN = ("run", "exec", "dlx", "tool", "x")  # words of launchers: `uv run`, `pipx run`
_UNDOES = {"create": ("delete", "remove"), "add": ("remove", "delete"), "insert": ("delete", "remove")}
_MOST_NAMES = 20
_ELSEWHERE = {"attach", "vacuum"}  # words of SQL that come with the name of a file


class ToolVerdict(Value):
    """What was found. `decision`: run, ask, hold or refuse. `is_covered`: all it changes is in the checkpoints."""

    cls: str
    decision: str
    reason: str = ""
    hints: tuple[str, ...] = ()
    is_covered: bool = False


def server_names(argv: Sequence[str]) -> tuple[str, ...]:
    """The names that a server's command goes by: its program, or the package that a launcher starts."""
    names: list[str] = []
    for word in argv[:_MOST_NAMES]:
        base = os.path.basename(word)
        if word.startswith("-") or (names and base in _WITHIN):
            continue
        names.append(_plain(base))
        if word.startswith("@") and "/" in word:
            names.append(_plain(word))
        elif "/node_modules/" in word:
            package = word.rpartition("/node_modules/")[2].split("/")
            names.append("/".join(package[: 2 if package[0].startswith("@") else 1]))
        if base not in _LAUNCHERS:
            break
    return tuple(dict.fromkeys(names))


def _plain(name: str) -> str:
    """Without its version and ending: mcp-server-git of mcp_server_git, mcp-server-git==1.2 and mcp-server-git.exe."""
    kept = name[:1] + name[1:].partition("@")[0]
    kept = kept.partition("==")[0].removesuffix(".exe").removesuffix(".py").removesuffix(".js")
    return kept if kept.startswith("@") else kept.replace("_", "-")


def judge_tool(
    tool: str,
    *,
    rule: ToolRule | None,
    annotations: Mapping[str, object] | None,
    outside: str | None,
    mode: str,
    is_trusted: bool = False,
    option: str = "",
) -> ToolVerdict:
    """The verdict. `outside`: what `uncovered` says of the rule's files; None: they are all in the checkpoints.

    `option`: what `option_in` finds: with one of those a program that only reads may write (`git diff --output=FILE`).
    """
    if rule is not None and rule.files and outside is None:
        return ToolVerdict(RESTORABLE, decide(RESTORABLE, mode=mode).verb, is_covered=True)
    if rule is not None and rule.inverse:
        cls, why = rule.cls, rule.note
    elif rule is not None and rule.files:
        cls, why = raised(rule.cls, IRREVERSIBLE), outside or rule.note
    elif rule is not None and rule.cls == READ and option:
        cls, why = IRREVERSIBLE, "an argument begins with '-', and could be taken for an option"
    elif rule is not None:
        cls, why = with_annotations(rule.cls, annotations), rule.note
    elif annotations and claimed(annotations) == READ and (is_trusted or mode != AUTOPILOT):
        cls, why = READ, ""
    else:
        cls = with_annotations(None, annotations, is_trusted=is_trusted)
        why = f"that {tool} only reads is its server's word alone" if annotations else f"nothing is known of {tool}"
        if annotations and claimed(annotations) != READ:
            why = f"its server says that {tool} changes things, and nobody says how to take it back"
    found = decide(cls, mode=mode, why=why)
    return ToolVerdict(cls, found.verb, found.reason, found.hints)


def uncovered(
    rule: ToolRule,
    arguments: Mapping[str, object],
    *,
    argv: Sequence[str],
    cwd: str,
    variables: Mapping[str, str],
    tops: Sequence[str],
    gaps: Sequence[str] = (),
    roots: Sequence[str] = (),
    is_left_out: Callable[[str], bool] = lambda _: False,
) -> str | None:
    """Why a rollback would not bring back every file that the call changes; None if it does.

    `tops`: folders that are protected. `gaps`: paths in them that are not. `roots`: folders that the client gave to the
    server, from which it may read a relative path. `is_left_out`: whether checkpoints would not hold what is there.
    """
    if not rule.files:
        return "what it changes is not files"
    words = {word.lower() for word in re.findall("[A-Za-z]+", str(arguments.get(rule.sql, "")))} if rule.sql else set()
    if words & _ELSEWHERE:
        return "its statement may write another file"
    real_tops = [os.path.realpath(top) for top in tops]
    for source in rule.files:
        paths = _paths(source, arguments, argv, variables)
        if not paths:
            return f"where it writes is not known ({source} is not given)"
        if source.startswith("env:") and not os.path.isabs(paths[0]):
            return f"where it writes is not known ({source[4:]} is not an absolute path)"  # a server has its own idea
        for path in paths:
            if not _is_text(path):
                return "where it writes is not known (half a character in its path)"  # each program makes its own of it
            for each in _places(path, argv, cwd, roots):
                if os.path.basename(each) == ".git" and not os.path.isdir(each):
                    return f"the repository of {os.path.dirname(path)} is elsewhere"
                # `link/..` is where the link leads for the system, and its own folder for a server that tidies paths
                for real in (os.path.realpath(each), os.path.realpath(os.path.normpath(each))):
                    if not any(_is_in(real, top) for top in real_tops):
                        return f"{path} is outside of the workspace"
                    gap = next((gap for gap in gaps if _is_in(real, gap) or _is_in(gap, real)), None)
                    if gap is not None:
                        return f"{gap} is not protected"
                    if is_left_out(real):
                        return f"{path} is left out of the checkpoints by your configuration"
    return None


def option_in(value: object) -> str:
    """A text in the arguments that a program behind the server could take for an option; "" if there is none."""
    if isinstance(value, str):
        return value if value.startswith("-") else ""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(option_in, inner) if found), "")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _paths(
    source: str, arguments: Mapping[str, object], argv: Sequence[str], variables: Mapping[str, str]
) -> list[str]:
    if source.startswith("env:"):
        value: object = variables.get(source[4:])
    elif source.startswith("--"):
        value = None
        for at, word in enumerate(argv):
            if word == source and at + 1 < len(argv):
                value = argv[at + 1]
            elif word.startswith(source + "="):
                value = word[len(source) + 1 :]
    else:
        name, slash, rest = source.partition("/")
        value = arguments.get(name)
        if slash and isinstance(value, str):
            value = os.path.join(value, rest)
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one] if all(isinstance(v, str) for v in values) else []


def _places(path: str, argv: Sequence[str], cwd: str, roots: Sequence[str]) -> list[str]:
    """Where a path may be: a relative one is read from the folder of the server, or from one that it was given."""
    path = os.path.expanduser(path)
    if os.path.isabs(path):
        return [path]
    given = [os.path.join(cwd, word) for word in argv[1:] if not word.startswith("-")]
    return [os.path.join(base, path) for base in (cwd, *(each for each in given if os.path.isdir(each)), *roots)]


def _is_in(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


# -- what takes a call back


class Undo(Value):
    """The call of the same server that takes one back; `why`: why there is none. `is_guess`: from names alone."""

    tool: str = ""
    arguments: Json | None = None
    why: str = ""
    is_guess: bool = False
    is_idempotent: bool = False


def undo_of(
    tool: str,
    arguments: Mapping[str, object],
    answer: object,
    *,
    rule: ToolRule | None,
    tools: Mapping[str, Mapping[str, object]],
) -> Undo:
    """What takes a call back, now that its structured answer is known. `tools`: what the server lists, by name."""
    if rule is not None:
        if not rule.inverse:
            return Undo(why=rule.note)
        try:
            filled = {name: _filled(value, arguments, answer, None) for name, value in rule.arguments}
        except LookupError as missing:
            return Undo(why=f"rule {rule.id}: the answer has no {missing.args[0]}")
        return Undo(rule.inverse, filled, is_idempotent=rule.is_idempotent)
    return _paired(tool, arguments, answer, tools)


def pair_of(tool: str, tools: Mapping[str, Mapping[str, object]]) -> str:
    """The tool of the same server that by its name takes this one back: create_x and delete_x; "" if there is none."""
    return _pair(tool, tools)[0]


def _pair(tool: str, tools: Mapping[str, Mapping[str, object]]) -> tuple[str, str]:
    """The other tool, and the noun that both are about."""
    for verb, others in _UNDOES.items():
        for spelled in (verb, verb.capitalize()):
            at = tool.find(spelled)
            # a word of its own: create_x, x_create, createX, not recreate or address
            if at < 0 or (at and tool[at - 1].isalpha() and spelled.islower()):
                continue
            rest = tool[at + len(spelled) :]
            if rest and rest[0].islower():
                continue
            for other in others:
                name = tool[:at] + (other if spelled.islower() else other.capitalize()) + rest
                if name in tools:
                    return name, rest if rest.strip("_-./") else tool[:at]
    return "", ""


def _paired(
    tool: str, arguments: Mapping[str, object], answer: object, tools: Mapping[str, Mapping[str, object]]
) -> Undo:
    """What the caller named keeps the caller's value; what is left must be named by the answer, and by it alone."""
    other, noun = _pair(tool, tools)
    if not other:
        return Undo(why="nobody says how to take it back")
    schema = tools[other].get("inputSchema")
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(required, list) or not required or not all(isinstance(name, str) for name in required):
        return Undo(why=f"{other} does not say what it needs")
    left = [name for name in required if name not in arguments]
    own = _own_name(required, left, noun)
    if not left or (own and own not in left):
        # what the caller named may have been there before: taking that away would be no undo
        return Undo(why=f"the answer does not name what {other} would take away")
    given: Json = {name: arguments[name] for name in required if name in arguments}
    for name in left:
        found = _id_in(answer, name, noun, is_own=name == own)
        if found is None:
            return Undo(why=f"the answer has no {name} for {other}")
        if name == own and found in list(arguments.values()):
            return Undo(why=f"the answer may name what {tool} was given, not what it made")  # a parent's id
        given[name] = found
    return Undo(other, given, is_guess=True)


def _own_name(required: Sequence[str], left: Sequence[str], noun: str) -> str:
    """The one name that stands for the thing itself, which a plain `id` in the answer may fill; "" if none does."""
    found = [name for name in required if _is_named(name, noun) or _is_named(_stem(name), noun)]
    if not found and not _words(noun):  # `create` and `delete` alone: whatever they make
        found = [name for name in left if _stem(name)] if len(left) == 1 else []
    found = found or [name for name in required if name.lower() == "id"]
    return found[0] if len(found) == 1 else ""


def _id_in(answer: object, name: str, noun: str, *, is_own: bool) -> str | int | None:
    """An id of a structured answer, from its top or from the object named after the noun; None if not exactly one."""
    if not isinstance(answer, dict):
        return None
    inner = [value for key, value in answer.items() if isinstance(value, dict) and _is_named(str(key), noun)]
    for wanted in [name] + (["id"] if is_own and name.lower().endswith("id") else []):
        values = [place[wanted] for place in (answer, *inner) if wanted in place]
        ids = [v for v in values if isinstance(v, (str, int)) and not isinstance(v, bool) and v != ""]
        if ids:
            return ids[0] if all(each == ids[0] for each in ids) else None  # two that differ: which one is not known
    return None


def _stem(name: str) -> str:
    """comment of comment_id and commentId; "" of what is not called so."""
    words = _words(name)
    return "_".join(words[:-1]) if words[-1:] == ["id"] else name[:-2] if name.lower().endswith("id") else ""


def _is_named(name: str, noun: str) -> bool:
    """Whether it is called by the noun, or by its last words: comment in issue_comment."""
    words, wanted = _words(name), _words(noun)
    return bool(words) and words == wanted[-len(words) :]


def _words(name: str) -> list[str]:
    """issue and comment of issue_comment, issue-comment and issueComment."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\dA-Z_]+|\d+", name)]


def _filled(value: object, arguments: Mapping[str, object], answer: object, item: object) -> object:
    if isinstance(value, dict):
        if set(value) == {"each", "make"}:
            items = _filled(value["each"], arguments, answer, item)
            if not isinstance(items, list):
                raise LookupError(f"list for {value['each']}")
            return [_filled(value["make"], arguments, answer, each) for each in items]
        return {str(key): _filled(inner, arguments, answer, item) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, arguments, answer, item) for inner in value]
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        head, *path = value[1:-1].split(".")
        sources: Json = {"response": answer, "arguments": dict(arguments), "item": item}
        return _at(sources.get(head), path, value)
    return value


def _at(found: object, path: Sequence[str], whole: str) -> object:
    for number, name in enumerate(path):
        key = name.removesuffix("[]")
        if not isinstance(found, dict) or key not in found:
            raise LookupError(whole)
        found = found[key]
        if name.endswith("[]"):
            if not isinstance(found, list):
                raise LookupError(whole)
            return [_at(each, path[number + 1 :], whole) for each in found]
    return found
