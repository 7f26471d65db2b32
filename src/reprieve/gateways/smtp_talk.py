"""The server's side of an SMTP conversation. Pure: bytes in, answers and messages out.

A message ends at CRLF.CRLF and nowhere else: a bare line end never does, so no message can hide another one in itself.
What a client logs in with is read, accepted and forgotten.
"""

from __future__ import annotations

from reprieve.effects.mime import is_address
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 50 << 20
_LONGEST_LINE = 4096
_MOST_RECIPIENTS = 1000
GREETING = b"220 localhost Reprieve holds mail here; nothing leaves\r\n"
_END = b"\r\n.\r\n"


class Received(Value):
    """A message that came in whole. Answer it by `Talk.answered`."""

    sender: str
    rcpt: tuple[str, ...]
    data: bytes


class Talk:
    """One connection."""

    def __init__(self, *, largest: int = LARGEST) -> None:
        self._largest = largest
        self._buffer = bytearray()
        self._sender: str | None = None
        self._rcpt: list[str] = []
        self._state = "command"  # or data, login (lines of a login), login-last
        self._seen = 0  # of the buffer, while a message comes in
        self._is_too_large = False
        self.is_over = False

    def feed(self, more: bytes) -> Iterator[bytes | Received]:
        """What to send back. After a Received go on only when it is answered."""
        self._buffer += more
        while not self.is_over:
            if self._state == "data":
                message = self._message()
                if message is None:
                    return
                yield message
                continue
            line, end, rest = self._buffer.partition(b"\n")
            if not end:
                if len(self._buffer) > _LONGEST_LINE:
                    self.is_over = True
                    yield b"500 5.5.2 that line is too long\r\n"
                return
            self._buffer = rest
            yield self._line(bytes(line.rstrip(b"\r")))

    def answered(self, id: str, problem: str) -> bytes:
        """What the client hears of a message: held under an id, or a problem and try again later."""
        self._reset()
        if problem:
            return b"451 4.3.0 not held, not sent: %s\r\n" % " ".join(problem.split()).encode("ascii", "replace")[:400]
        return b"250 2.0.0 held as %s\r\n" % id.encode()

    # -- inside

    def _message(self) -> bytes | Received | None:
        # the end may begin with the CRLF of the DATA line itself: a message of nothing
        start = max(0, self._seen - len(_END))
        if not self._is_too_large and self._buffer.startswith(b".\r\n"):
            body, after = b"", 3
        else:
            at = self._buffer.find(_END, start)
            self._seen = len(self._buffer)
            if at < 0:
                if len(self._buffer) > self._largest + len(_END):
                    self._is_too_large = True
                    del self._buffer[: -len(_END)]  # forget it, and go on to its end
                    self._seen = 0
                return None
            body, after = bytes(self._buffer[: at + 2]), at + len(_END)
        del self._buffer[:after]
        self._state, self._seen = "command", 0
        if self._is_too_large or len(body) > self._largest:
            self._reset()
            return b"552 5.3.4 not held, not sent: the message is too large\r\n"
        if body.startswith(b"."):
            body = body[1:]
        assert self._sender is not None
        return Received(self._sender, tuple(self._rcpt), body.replace(b"\r\n.", b"\r\n"))

    def _line(self, line: bytes) -> bytes:
        if self._state == "login":  # the user's name; never looked at
            self._state = "login-last"
            return b"334 UGFzc3dvcmQ6\r\n"
        if self._state == "login-last":
            self._state = "command"
            return b"501 5.7.0 given up\r\n" if line == b"*" else b"235 2.7.0 welcome\r\n"
        verb, _, rest = line.partition(b" ")
        word, text = verb.upper().decode("ascii", "replace"), rest.strip().decode("utf-8", "replace")
        if word in ("EHLO", "HELO"):
            self._reset()
            if word == "HELO":
                return b"250 localhost\r\n"
            return (
                b"250-localhost\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n"
                b"250-AUTH PLAIN LOGIN\r\n250 SIZE %d\r\n" % self._largest
            )
        if word == "AUTH":
            return self._auth(text)
        if word == "MAIL":
            return self._mail(text)
        if word == "RCPT":
            return self._receiver(text)
        if word == "DATA":
            if not self._rcpt:
                return b"503 5.5.1 nobody is to get it\r\n"
            self._state = "data"
            return b"354 end with a dot on a line of its own\r\n"
        if word == "QUIT":
            self.is_over = True
            return b"221 2.0.0 bye\r\n"
        if word in ("RSET", "NOOP"):
            if word == "RSET":
                self._reset()
            return b"250 2.0.0 ok\r\n"
        if word == "VRFY":
            return b"252 2.1.5 perhaps\r\n"
        return b"502 5.5.2 no such command\r\n"

    def _auth(self, text: str) -> bytes:
        how, _, first = text.partition(" ")
        if how.upper() == "PLAIN":
            if first:
                return b"235 2.7.0 welcome\r\n"
            self._state = "login-last"
            return b"334 \r\n"
        if how.upper() == "LOGIN":
            self._state = "login-last" if first else "login"
            return b"334 UGFzc3dvcmQ6\r\n" if first else b"334 VXNlcm5hbWU6\r\n"
        return b"504 5.5.4 no such way to log in\r\n"

    def _mail(self, text: str) -> bytes:
        if self._sender is not None:
            return b"503 5.5.1 one message at a time\r\n"
        address, options = _path(text, "FROM:")
        if address is None or (address and not is_address(address)):
            return b"501 5.1.7 that is no address\r\n"
        for option in options:
            name, _, value = option.upper().partition("=")
            if name == "SIZE" and value.isdecimal() and int(value) > self._largest:
                return b"552 5.3.4 not held, not sent: the message is too large\r\n"
            if name not in ("SIZE", "BODY", "SMTPUTF8", "AUTH"):
                return b"555 5.5.4 that can't be promised\r\n"
        self._sender = address
        return b"250 2.1.0 ok\r\n"

    def _receiver(self, text: str) -> bytes:
        if self._sender is None:
            return b"503 5.5.1 MAIL comes first\r\n"
        address, options = _path(text, "TO:")
        if not address or not is_address(address):
            return b"501 5.1.3 that is no address\r\n"
        if options:
            return b"555 5.5.4 that can't be promised\r\n"
        if len(self._rcpt) >= _MOST_RECIPIENTS:
            return b"452 4.5.3 too many recipients\r\n"
        self._rcpt.append(address)
        return b"250 2.1.5 ok\r\n"

    def _reset(self) -> None:
        self._sender, self._rcpt, self._is_too_large = None, [], False


def _path(text: str, word: str) -> tuple[str | None, list[str]]:
    """The address of "FROM:<address> OPTION…", None if it is no such thing, and the options."""
    if not text.upper().startswith(word):
        return None, []
    words = text[len(word) :].split()
    if not words or not (words[0].startswith("<") and words[0].endswith(">")):
        return None, []
    return words[0][1:-1], words[1:]
