"""Stands in for `sendmail`, `msmtp`, `mail` and `mailx` in a run: what they are given is held and not sent.

    python -P -m reprieve.gateways.sendmail ROOT NAME ARGUMENTS…

Options that only say how to send are accepted; what is not known is an error (64), so that no message is taken for sent
in a way that was not meant. Exit code 75 if it could not be held: try again.
"""

from __future__ import annotations

import sys

from reprieve.app import mail
from reprieve.app.finding import open_workspace
from reprieve.effects import mime
from reprieve.errors import ReprieveError, Usage
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.effects.mime import Letter

USAGE, TRY_AGAIN = 64, 75
# of sendmail: options with a value (glued to it or after it), flags, and words that say how to send
_VALUED = frozenset("fFrRNVXLhOpBaC")
_FLAGS = frozenset("tinvmUG")
_GLUED = ("-o", "-bm", "-e")
_HOW_TO_SEND = ("--account", "--host", "--port", "--file", "--logfile")


class Asked(Value):
    """What a command line says."""

    rcpt: tuple[str, ...] = ()
    sender: str = ""
    subject: str = ""
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    is_from_headers: bool = False  # -t
    ends_at_dot: bool = True  # without -i a line with a dot alone ends the message


def read_sendmail(arguments: Sequence[str]) -> Asked:
    """The command line of sendmail or msmtp. Raises Usage."""
    words, rcpt = list(arguments), []
    found = Asked()
    while words:
        word = words.pop(0)
        if word == "--":
            rcpt += words
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if name == "--read-recipients":
                found = found.replace(is_from_headers=True)
            elif name == "--from" and equals:
                found = found.replace(sender=value)
            elif not (equals and name in _HOW_TO_SEND):
                raise Usage(f"'{word}' is not understood")
        elif not word.startswith("-") or word == "-":
            rcpt.append(word)
        elif set(word[1:]) <= _FLAGS:
            if "t" in word:
                found = found.replace(is_from_headers=True)
            if "i" in word:
                found = found.replace(ends_at_dot=False)
        elif word[1] in _VALUED:
            value = word[2:] or _value_of(word, words)
            if word[1] in "fr":
                found = found.replace(sender=value)
        elif word == "-oi":
            found = found.replace(ends_at_dot=False)
        elif not word.startswith(_GLUED):
            raise Usage(f"'{word}' is not understood")
    return found.replace(rcpt=tuple(rcpt))


def read_mail(arguments: Sequence[str]) -> Asked:
    """The command line of mail or mailx. Raises Usage."""
    words = list(arguments)
    given: dict[str, list[str]] = {"s": [], "r": [], "c": [], "b": [], "to": []}
    while words:
        word = words.pop(0)
        if word == "--":
            given["to"] += words
            break
        if not word.startswith("-") or word == "-":
            given["to"].append(word)
        elif word[1] in "srcb":
            given[word[1]].append(word[2:] or _value_of(word, words))
        elif word not in ("-n", "-v", "-E"):
            raise Usage(f"'{word}' is not understood")
    return Asked(
        tuple(given["to"]),
        sender="".join(given["r"][-1:]),
        subject="".join(given["s"][-1:]),
        cc=tuple(given["c"]),
        bcc=tuple(given["b"]),
    )


def until_dot(raw: bytes) -> bytes:
    """What comes before a line that is a dot alone."""
    lines = []
    for line in raw.splitlines(keepends=True):
        if line.rstrip(b"\r\n") == b".":
            break
        lines.append(line)
    return b"".join(lines)


def letter_of(ws: Workspace, name: str, arguments: Sequence[str], raw: bytes) -> Letter:
    """The message that the program would have sent."""
    if name in ("mail", "mailx"):
        asked = read_mail(arguments)
        sender = asked.sender or ws.config.mail_from or _here()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise Usage("the text is not in UTF-8") from e
        return mail.compose(
            ws, sender=sender, to=asked.rcpt, cc=asked.cc, bcc=asked.bcc, subject=asked.subject, text=text
        )
    asked = read_sendmail(arguments)
    data = until_dot(raw) if asked.ends_at_dot else raw
    rcpt = mime.addresses(*asked.rcpt)
    if asked.is_from_headers:
        rcpt = [*mime.receivers_of(data), *rcpt]
    sender = mime.addresses(asked.sender)[0] if asked.sender and asked.sender != "<>" else ""
    if not sender and not mime.field(mime.with_crlf(data), "from"):
        sender = ws.config.mail_from or _here()
    return mail.adopt(ws, data, sender=sender, rcpt=rcpt)


def main(argv: Sequence[str]) -> int:
    """Hold what comes on standard input."""
    root, name, *arguments = argv
    try:
        with open_workspace(root) as ws:
            outcome = mail.stage(ws, letter_of(ws, name, arguments, sys.stdin.buffer.read()))
    except Usage as e:
        print(f"{name}: not held, not sent: {e.message}", file=sys.stderr)
        return USAGE
    except (ReprieveError, OSError) as e:
        print(f"{name}: not held, not sent: {e}", file=sys.stderr)
        return TRY_AGAIN
    print(f"{name}: held as {outcome.effect.id}; nothing was sent", file=sys.stderr)
    return 0


def _value_of(word: str, words: list[str]) -> str:
    if not words:
        raise Usage(f"'{word}' needs a value")
    return words.pop(0)


def _here() -> str:
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname() or 'localhost'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
