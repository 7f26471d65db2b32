"""The shell's syntax tree: making one, and looking for things in it. What the things mean is `shell`'s."""

from __future__ import annotations

from reprieve.policy.variables import SETS_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node, Parser

# kinds of nodes that are one word of a command
WORDS = (
    "word", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "simple_expansion",
    "expansion",
    "command_substitution", "process_substitution", "number", "arithmetic_expansion", "brace_expression",
    "extglob_pattern",
    "regex", "variable_name", "special_variable_name", "test_operator", "array", "subscript",
)  # fmt: skip


def parser() -> Parser:
    """A parser for bash. Imported late: it is paid for by shell commands alone."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def armoured(text: str) -> bytes:
    """The text in plain ASCII: the grammar's scanner asks C's `isalpha` about whole code points and crashes on some.

    What is replaced counts as part of a word to the grammar, as it does to a shell. `\x02` and `\x03` must not occur.
    """
    if text.isascii():
        return text.encode("ascii")
    return "".join(ch if ch.isascii() else f"\x02{ord(ch):x}\x03" for ch in text).encode("ascii")


def plain_again(data: bytes) -> str:
    """The text that was armoured."""
    text = data.decode("ascii")
    if "\x02" not in text:
        return text
    import re

    return re.sub("\x02([0-9a-f]+)\x03", lambda match: chr(int(match[1], 16)), text)


def every(node: Node, kind: str) -> list[Node]:
    """All nodes of a kind in a tree."""
    found, stack = [], [node]
    while stack:
        one = stack.pop()
        if one.type == kind:
            found.append(one)
        stack += one.children
    return found


def names_any(node: Node, source: bytes, names: Sequence[str]) -> bool:
    """Whether a command of one of these names, or one that can't be told, occurs below."""
    for one in every(node, "command_name"):
        text = source[one.start_byte : one.end_byte].decode("utf-8", "replace")
        if (
            text in names
            or text in ("eval", "source", ".", "builtin", "command")
            or not text.replace("-", "").replace("_", "").isalnum()
        ):
            if text.replace("/", "").replace(".", "").replace("-", "").isalnum() and text not in (
                *names,
                "eval",
                "source",
                ".",
                "builtin",
                "command",
            ):
                continue
            return True
    return False


def sets_any(node: Node, source: bytes) -> bool:
    """Whether something below sets a variable, or may."""
    kinds = ("variable_assignment", "declaration_command", "unset_command")
    return any(every(node, kind) for kind in kinds) or names_any(node, source, SETS_VARIABLES)


def is_assignment(node: Node) -> bool:
    """Whether a statement only sets variables: it does not fail."""
    return node.type in ("variable_assignment", "variable_assignments", "declaration_command")


def is_plain_sum(text: str) -> bool:
    """`((i++))`, `((a = b + 1))`, `((a < 3))` and the like."""
    import re

    operand = r"\$?\w+"
    # blanks on both sides or on neither: `a -b` may be a program and its option
    sign = r"(?:\s(?:[-+*/%<>]|<=|>=|==|!=)\s|[-+*/%<>]|<=|>=|==|!=)"
    sum_ = rf"{operand}(?:{sign}{operand})*"
    test = rf"{operand}(?:{sign}{operand})+"
    return re.fullmatch(rf"\(\(\s*(?:\w+(?:\+\+|--)|\w+\s*[-+*/%]?=\s*{sum_}|{test})\s*\)\)", text) is not None


def may_be_commands(text: str) -> bool:
    """Whether a `$((…))` reads like a program with arguments: shells differ in what they make of the parentheses."""
    import re

    return re.search(r"[A-Za-z_]\w*\s+[-/~.]?[A-Za-z_]", text) is not None


def runs_in_subscript(text: str) -> bool:
    """Whether `text`, taken for a variable's name, runs something: the subscript of `a[$(…)]` is expanded once more."""
    return "[" in text and ("$(" in text or "`" in text)


def touching(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes with nothing between them belong together."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups
