"""What a command prints into a pipe, where that is plain from its words. Pure."""

from __future__ import annotations

from reprieve.policy.languages import FindCommand
from reprieve.policy.scene import UNKNOWN_INPUT, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.policy.words import Word


def printed(words: Sequence[Word], stdin: Stdin) -> Stdin:
    """`echo` and `printf` of known words, `cat` of what it is given, `find -print0`; of anything else nobody knows."""
    texts = [word.text for word in words]
    if not texts or any(text is None for text in texts) or any(word.is_glob for word in words):
        return UNKNOWN_INPUT
    known = [text or "" for text in texts]
    if known == ["cat"]:
        return stdin if stdin.is_given else UNKNOWN_INPUT
    if known[0] == "echo" and not any("\\" in text for text in known):
        rest = known[1:]
        while rest and rest[0] in ("-n", "-e", "-E", "-ne", "-en"):
            rest = rest[1:]
        return Stdin(True, " ".join(rest) + "\n")
    if known[0] == "printf" and len(known) == 2 and "%" not in known[1]:
        return (
            Stdin(True, known[1].replace("\\n", "\n"))
            if known[1].count("\\") == known[1].count("\\n")
            else UNKNOWN_INPUT
        )
    if known[0] == "printf" and len(known) == 3 and known[1] in ("%s", "%s\\n", "%b"):
        return Stdin(True, known[2] + "\n") if "\\" not in known[2] else UNKNOWN_INPUT
    if known[0] == "find" and "-print0" in known:
        command = FindCommand(words)
        return Stdin(True, None, tuple(command.found(start) for start in command.starts))
    return UNKNOWN_INPUT
