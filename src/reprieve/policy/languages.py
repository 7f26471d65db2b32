"""Small programs inside a command line: awk, sed, python -c, node -e. Pure.

Only what is plainly harmless is passed; everything else is opaque. Nothing is run and nothing imported.
"""

from __future__ import annotations

import re

from reprieve.policy.reads import given
from reprieve.policy.scene import HARMLESS, Judgement, Scene, heaviest, opaque, writes
from reprieve.policy.words import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

_AWK_RUNS = re.compile(r"system|getline|fflush|close|@load|@include|@[A-Za-z_]")
_AWK_SENDS = re.compile(r"\bprintf?\b[^;}\n]*(?:>|(?<!\|)\|(?!\|))")
_AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]/\n\\]|\\.)*\])*/")
_AWK_WORD = re.compile(r"\w+|\s+|#[^\n]*")
_AWK_GOES_ON = re.compile(r"(,|&&|\|\||\\)[ \t]*\n\s*")  # a statement does not end with such a line
_AWK_BEFORE_REGEX = ("print", "printf", "return", "in", "else", "do", "case")


def judge_awk(words: Sequence[Word], scene: Scene) -> Judgement:
    """Harmless if the program neither starts another one nor prints into a file."""
    at = 1
    while at < len(words):
        text = words[at].text
        if text is None:
            return opaque("awk runs a program that only the running shell knows")
        if text in ("-F", "-v"):
            at += 2
        elif text == "--":
            at += 1
            break
        elif text.startswith(("-F", "-v")) and len(text) > 2 and not text.startswith("--"):
            at += 1
        elif text.startswith("-"):
            return opaque(f"awk {text} can't be read")
        else:
            break
    if at >= len(words) or words[at].text is None:
        return opaque("awk runs a program that only the running shell knows")
    program = words[at].text or ""
    bare = _awk_without_texts(program)
    if bare is None:
        return opaque("awk runs a program that can't be read")
    if _AWK_RUNS.search(program) or _AWK_SENDS.search(program) or _AWK_SENDS.search(bare):
        return opaque("awk starts a program or writes a file")
    return HARMLESS


def _awk_without_texts(program: str) -> str | None:
    """The program without what is in its strings, regular expressions and comments; None: they can't be told apart."""
    kept: list[str] = []
    before = ""  # the last thing that is not a blank
    at = 0
    while at < len(program):
        ch = program[at]
        is_operand = before[-1:] in (")", "]", '"') or before in ("++", "--") or (
            (before[:1].isalnum() or before[:1] in ("_", "$")) and before not in _AWK_BEFORE_REGEX
        )  # fmt: skip
        is_regex = ch == "/" and not is_operand
        found = _AWK_STRING.match(program, at) if ch == '"' else _AWK_REGEX.match(program, at) if is_regex else None
        if found is None and (ch == '"' or is_regex):
            return None
        if ch == "/" and before in (")", "++", "--") and '"' in program[at:] and "/" in program[at + 1 :]:
            return None  # a division or the beginning of an expression: awks disagree
        if found is not None:
            kept.append('""')
            before, at = '"', found.end()
            continue
        found = _AWK_WORD.match(program, at)
        text = found[0] if found else program[at : at + 2] if program[at : at + 2] in ("++", "--") else ch
        if not text.startswith("#"):
            kept.append(text)
            before = text if not text.isspace() else "" if "\n" in text else before
        at += len(text)
    return _AWK_GOES_ON.sub(lambda match: match[1] if match[1] != "\\" else " ", "".join(kept))


def judge_sed(words: Sequence[Word], scene: Scene) -> Judgement:
    """In place it replaces files; its script may also write or run, which makes it opaque."""
    scripts: list[str | None] = []
    operands: list[Word] = []
    in_place = False
    at = 1
    is_over = False
    while at < len(words):
        word = words[at]
        text = word.text
        at += 1
        if text is None or is_over or not text.startswith("-") or text == "-":
            operands.append(word)
        elif text == "--":
            is_over = True
        elif text in ("-e", "--expression"):
            scripts.append(words[at].text if at < len(words) else None)
            at += 1
        elif text.startswith("--expression="):
            scripts.append(text.partition("=")[2])
        elif text in ("-f", "--file") or text.startswith(("--file=", "--in-place-")):
            return opaque("sed runs a script file that nobody read")
        elif text.startswith("--in-place") or text == "-i":
            in_place = True
            if text == "-i" and at < len(words) and words[at].text == "":
                at += 1  # BSD: -i ''
        elif text.startswith("--"):
            if text not in ("--quiet", "--silent", "--regexp-extended", "--separate", "--null-data", "--posix",
                            "--unbuffered", "--debug", "--sandbox", "--line-length"):  # fmt: skip
                return opaque(f"sed {text} can't be read")
        else:
            for number, letter in enumerate(text[1:], 1):
                if letter == "i":
                    in_place = True
                    break
                if letter == "e":
                    rest = text[number + 1 :]
                    scripts.append(rest or (words[at].text if at < len(words) else None))
                    at += 0 if rest else 1
                    break
                if letter not in "nErsuz":
                    return opaque(f"sed {text} can't be read")
    if not scripts:
        if not operands:
            return opaque("sed has no script")
        scripts.append(operands.pop(0).text)
    if any(script is None or not _is_plain_sed(script) for script in scripts):
        return opaque("sed's script may write a file or run a program")
    return writes(operands, scene) if in_place else HARMLESS


_SED_ADDRESS = re.compile(r"(?:\d+(?:~\d+)?|\$|[+~]\d+)")
_SED_PLAIN = "pPdDqQ=nNgGhHxlzF"


def _is_plain_sed(script: str) -> bool:
    """Whether a script consists of commands that only edit the text that passes through."""
    at, size = 0, len(script)
    while at < size:
        if script[at] in " \t\n;{}":
            at += 1
            continue
        if script[at] == "#":
            end = script.find("\n", at)
            at = size if end < 0 else end
            continue
        for _ in range(2):  # up to two addresses
            place = _address(script, at)
            if place is None:
                return False
            at = place
            while at < size and script[at] in " \t":
                at += 1
            if at < size and script[at] == ",":
                at += 1
        while at < size and script[at] in " \t!":
            at += 1
        if at >= size:
            return False
        command = script[at]
        at += 1
        if command in "{}":
            continue
        if command in _SED_PLAIN:
            while at < size and script[at] in "0123456789 \t":
                at += 1
        elif command in "aic":
            end = at
            while end < size and (script[end] != "\n" or script[end - 1] == "\\"):
                end += 1
            at = end
            continue
        elif command in "sy":
            place = _substitution(script, at, is_s=command == "s")
            if place is None:
                return False
            at = place
        elif command in "btT:":
            while at < size and script[at] not in ";\n}":
                at += 1
        else:
            return False
        if at < size and script[at] not in " \t\n;}":
            return False
    return True


def _address(script: str, at: int) -> int | None:
    found = _SED_ADDRESS.match(script, at)
    if found:
        return found.end()
    if at < len(script) and script[at] in "/\\":
        closer = "/"
        start = at + 1
        if script[at] == "\\":
            closer, start = script[at + 1 : at + 2], at + 2
        end = _until(script, start, closer)
        if end is None:
            return None
        while end < len(script) and script[end] in "IM":
            end += 1
        return end
    return at


def _until(script: str, at: int, closer: str) -> int | None:
    in_class = False
    while at < len(script):
        ch = script[at]
        if ch == "\\":
            at += 2
            continue
        if ch == closer and not in_class:
            return at + 1
        if ch == closer:  # sed programs disagree on a delimiter inside brackets
            return None
        if ch == "[" and not in_class:
            in_class = True
        elif ch == "]" and in_class:
            in_class = False
        at += 1
    return None


def _substitution(script: str, at: int, *, is_s: bool) -> int | None:
    closer = script[at : at + 1]
    if not closer or closer in "\\\n":
        return None
    middle = _until(script, at + 1, closer)
    if middle is None:
        return None
    end = middle
    while end < len(script) and script[end] != closer:
        end += 2 if script[end] == "\\" else 1
    if end >= len(script):
        return None
    end += 1
    while is_s and end < len(script) and script[end] in "gpiIm0123456789M":
        end += 1
    return end


# -- python

_PY_NAMES = frozenset([
    "print", "len", "str", "int", "float", "bool", "sorted", "sum", "min", "max", "range", "list", "dict", "set",
    "tuple", "repr", "round", "abs", "type", "enumerate", "zip", "hex", "bin", "oct", "ord", "chr", "any", "all",
    "map", "filter", "reversed", "isinstance", "divmod", "pow", "format", "frozenset", "bytes",
])  # fmt: skip
_PY_METHODS = frozenset([
    "join", "split", "strip", "lstrip", "rstrip", "upper", "lower", "title", "format", "replace", "get", "items",
    "keys", "values", "loads", "load", "dumps", "now", "today", "isoformat", "strftime", "python_version", "system",
    "machine", "platform", "node", "read", "readline", "readlines", "count", "index", "find", "startswith",
    "endswith", "splitlines", "sqrt", "floor", "ceil", "log", "log2", "log10", "encode", "decode", "hex", "append",
    "extend", "update", "copy", "zfill", "ljust", "rjust", "center", "fromisoformat", "utcnow", "time", "timestamp",
    "total_seconds", "most_common",
])  # fmt: skip
_PY_MODULES = frozenset(
    ("json", "sys", "math", "datetime", "time", "platform", "collections", "textwrap", "string", "statistics")
)
# What may be looked at without being called. A module's own imports (`platform.os`) are not among it.
_PY_ATTRIBUTES = _PY_METHODS | frozenset(["argv", "version", "version_info", "platform", "stdin", "stdout", "stderr",
"path", "maxsize", "executable", "byteorder", "implementation", "name", "datetime", "date", "timedelta", "timezone",
"utc", "pi", "e", "inf", "nan", "year", "month", "day", "hour", "minute", "second", "major", "minor", "micro",
"Counter", "OrderedDict", "ascii_letters", "digits"])  # fmt: skip
# Built in elsewhere: by Python 2, and by `site`.
_PY_OTHER_BUILTINS = frozenset(
    ("execfile", "reload", "file", "apply", "raw_input", "exit", "quit", "help", "copyright", "credits", "license")
)
# These are part of the interpreter: no file beside the command can stand in for them.
_PY_BUILT_IN = frozenset(("sys", "time"))


def judge_python(name: str, words: Sequence[Word], scene: Scene) -> Judgement:
    """`-c` with a program that only computes and prints; `-m json.tool`; the rest is opaque."""
    is_isolated = False
    at = 1
    while at < len(words):
        text = words[at].text
        at += 1
        if text is None:
            return opaque(f"{name} runs what only the running shell knows")
        if text == "-c" or (
            text.startswith("-") and not text.startswith("--") and text.endswith("c") and set(text) <= set("-IBEsSuqc")
        ):
            is_isolated = is_isolated or "I" in text
            source = words[at].text if at < len(words) else None
            return _python_source(source, is_isolated=is_isolated)
        if text == "-m" or (text.startswith("-m") and len(text) > 2):
            module = text[2:] or (words[at].text if at < len(words) else None)
            rest = words[at + (0 if text[2:] else 1) :]
            return _python_module(module, rest, scene, is_isolated=is_isolated)
        if text.startswith("-") and set(text[1:]) <= set("IBEsSuq") and text != "-":
            is_isolated = is_isolated or "I" in text
            continue
        return opaque(f"{name} runs a program that nobody read")
    return opaque(f"{name} runs what it is given as input")


def _python_module(module: str | None, rest: Sequence[Word], scene: Scene, *, is_isolated: bool) -> Judgement:
    if module == "json.tool":
        operands = [word for word in rest if not (word.text or "").startswith("-")]
        return writes(operands[1:2], scene)
    if module in ("this", "platform", "calendar", "sysconfig", "site") and not rest:
        return HARMLESS
    return opaque(f"python -m {module} runs a program that nobody read")


def _python_source(source: str | None, *, is_isolated: bool) -> Judgement:
    import ast

    if source is None:
        return opaque("python -c runs text that only the running shell knows")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return opaque("python -c runs text that can't be read")
    own = _own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not _is_plain_name(node.id, own):
            return opaque(f"python -c uses {node.id}")
        why = _forbidden(node, is_isolated=is_isolated)
        if why:
            return opaque(f"python -c {why}")
    return HARMLESS


def _own_names(tree: ast.AST) -> set[str]:
    """The names that a program gives."""
    import ast

    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


def _is_plain_name(name: str, own: set[str]) -> bool:
    """Harmless wherever it is handed to: `map(exec, …)` calls what it is given.

    A built-in's name stays one although the program gives it somewhere too: that may be in another scope.
    """
    import builtins

    if name in _PY_NAMES or name.endswith(("Error", "Exception")):
        return True
    return name in own and not hasattr(builtins, name) and name not in _PY_OTHER_BUILTINS


def _forbidden(node: ast.AST, *, is_isolated: bool) -> str:
    """Why a node is not plainly harmless, or ""."""
    import ast

    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "?"]
        allowed = _PY_MODULES if is_isolated else _PY_BUILT_IN
        strange = [name for name in names if name not in allowed]
        if strange:
            hint = "; with -I it could not come from this folder" if strange[0] in _PY_MODULES else ""
            return f"imports {strange[0]}{hint}"
        if isinstance(node, ast.ImportFrom) and any(
            alias.name not in _PY_METHODS | {"Counter", "date"} for alias in node.names
        ):
            return "imports what is not known"
        return "" if all(alias.asname is None for alias in node.names) else "renames what it imports"
    if isinstance(node, ast.Call):
        target = node.func
        if isinstance(target, ast.Name):
            return "" if target.id in _PY_NAMES else f"calls {target.id}()"
        if isinstance(target, ast.Attribute):
            return "" if target.attr in _PY_METHODS else f"calls .{target.attr}()"
        return "calls something computed"
    if isinstance(node, ast.Name) and (
        node.id.startswith("__") or (isinstance(node.ctx, ast.Store) and node.id in _PY_NAMES)
    ):
        return f"uses {node.id}"
    if isinstance(node, ast.Attribute) and (node.attr not in _PY_ATTRIBUTES or not isinstance(node.ctx, ast.Load)):
        return f"uses .{node.attr}"
    if isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Delete | ast.With | ast.Global | ast.Await
    ):
        return "does more than compute and print"
    return ""


_NODE_PLAIN = re.compile(
    r"""\s*(?:console\.log\()?\s*(?:process\.versions?(?:\.\w+)?|process\.(?:arch|platform)"""
    r"""|require\((?P<q>['"])\./[\w./-]+\.json(?P=q)\)(?:\.\w+)*|[\d\s+*/().-]+)\s*\)?\s*;?\s*"""
)


def judge_node(name: str, words: Sequence[Word], scene: Scene) -> Judgement:
    """`-p`/`-e` with a version, a sum, or a field of a JSON file."""
    if len(words) == 3 and words[1].text in ("-e", "-p", "--eval", "--print", "-pe") and words[2].text is not None:
        if _NODE_PLAIN.fullmatch(words[2].text):
            return HARMLESS
        return opaque(f"{name} {words[1].text} runs a program that can't be read")
    return opaque(f"{name} runs a program that nobody read")


# -- find

_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_WRITES = ("-fprint", "-fprint0", "-fprintf", "-fls")


class FindCommand:
    """What `find` does besides finding: the commands it runs, whether it deletes, the files it writes, where it
    looks."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.starts: list[Word] = []
        self.commands: list[tuple[Word, ...]] = []
        self.deletes = False
        self.files: list[Word] = []
        self.unreadable = ""
        at = 1
        while at < len(words) and words[at].text in ("-H", "-L", "-P", "-O1", "-O2", "-O3"):
            at += 1
        while at < len(words):
            text = words[at].text
            if text is None:
                if words[at].prefix[:1] in ("", "-"):
                    self.unreadable = "find gets orders that only the running shell knows"
                self.starts.append(words[at])
            elif text.startswith("-") or text in ("(", ")", "!", ","):
                break
            else:
                self.starts.append(words[at])
            at += 1
        while at < len(words):
            text = words[at].text
            at += 1
            if text is None:
                before = words[at - 2].text or ""
                if not before.startswith("-") or before in ("-o", "-a", "-not", "-and", "-or", "-print"):
                    self.unreadable = "find gets orders that only the running shell knows"
            elif text == "-delete":
                self.deletes = True
            elif text in _FIND_WRITES:
                self.files += words[at : at + 1]
            elif text in _FIND_RUNS:
                end = at
                while end < len(words) and words[end].text not in (";", "+"):
                    end += 1
                self.commands.append(tuple(words[at:end]))
                at = end + 1
        if not self.starts:
            self.starts = [Word(".", ".")]

    def found(self, start: Word) -> Word:
        """Stands for whatever is found below a starting point."""
        return (
            Word(None)
            if start.text is None
            else Word(start.text.rstrip("/") + "/\x01" if start.text != "/" else "/\x01", is_glob=start.is_glob)
        )


def judge_language(name: str, words: Sequence[Word], scene: Scene) -> Judgement | None:
    """One of the languages, or None."""
    if name in ("awk", "gawk", "mawk", "nawk"):
        return judge_awk(words, scene)
    if name in ("sed", "gsed"):
        return judge_sed(words, scene)
    if re.fullmatch(r"python(?:[23](?:\.\d+)?)?", name):
        return judge_python(name, words, scene)
    if name in ("node", "nodejs"):
        return judge_node(name, words, scene)
    if name in ("perl", "ruby", "php", "lua", "tclsh", "Rscript", "osascript", "deno", "bun", "ghci", "irb", "julia"):
        return opaque(f"{name} runs a program that can't be read")
    if name in ("vi", "vim", "nvim", "ex", "ed", "emacs", "nano", "view"):
        return opaque(f"{name} is an editor that can run anything")
    return None


__all__ = ["FindCommand", "given", "heaviest", "judge_language"]
