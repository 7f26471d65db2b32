"""A mail server on loopback that counts what arrives, and can refuse, vanish or kill whoever talks to it.

Its own few lines of SMTP, so that what is tested is not judged by itself.
"""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from support.listening import Listening


@dataclass
class Arrived:
    """One message as it came over the wire, dots undone."""

    sender: str
    rcpt: list[str]
    data: bytes
    options: str = ""


@dataclass
class Sink(Listening):
    """Listens on 127.0.0.1. What it got is in `arrived`; `hear` is asked before each command is answered."""

    extensions: tuple[str, ...] = ("8BITMIME", "SMTPUTF8", "SIZE 1000000")
    refuse: dict[str, str] = field(default_factory=dict)  # recipient → answer
    answer_to_data: str = "250 ok"  # "" hangs up instead
    hear: Callable[[str], None] | None = None  # the command's first word; "." is the end of the message
    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None
    arrived: list[Arrived] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    talking: int = 0

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        _serve(self, stream.connection)

    def settings(self, **more: object) -> str:
        """A config.toml that sends here."""
        values: dict[str, object] = {
            "from": "agent@example.org",
            "smtp_host": "127.0.0.1",
            "smtp_port": self.port,
            "smtp_security": "none",
            **more,
        }
        lines = [f"{name} = {value if isinstance(value, int) else repr(str(value))}" for name, value in values.items()]
        return "[mail]\n" + "\n".join(lines) + "\n"


class _HungUp(OSError):
    """The sink has had enough of this connection."""


def kill_when(word: str, pid_of: Callable[[], int]) -> Callable[[str], None]:
    """A `hear` that kills the client with SIGKILL when it says this word, before it is answered."""

    def hear(said: str) -> None:
        if said == word:
            os.kill(pid_of(), signal.SIGKILL)

    return hear


def _serve(sink: Sink, connection: socket.socket) -> None:
    with ExitStack() as open_streams:
        _talk(sink, connection, open_streams)


def _talk(sink: Sink, connection: socket.socket, open_streams: ExitStack) -> None:
    stream = open_streams.enter_context(connection.makefile("rb"))

    def say(text: str) -> None:
        connection.sendall(text.encode() + b"\r\n")

    def hear(word: str) -> None:
        sink.heard.append(word)
        if sink.hear is not None:
            sink.hear(word)

    hear("CONNECT")
    say("220 sink")
    sender, options, rcpt, is_known = "", "", [], sink.login is None
    while line := stream.readline():
        text = line.decode("utf-8").rstrip("\r\n")
        word = text.partition(" ")[0].upper()
        hear(word)
        if word == "EHLO":
            offers = [*sink.extensions]
            if sink.tls and not isinstance(connection, ssl.SSLSocket):
                offers.append("STARTTLS")
            if sink.login:
                offers.append("AUTH PLAIN")
            say("\r\n".join(["250-sink", *(f"250-{offer}" for offer in offers), "250 HELP"]))
        elif word == "STARTTLS" and sink.tls:
            say("220 go on")
            connection = open_streams.enter_context(sink.tls.wrap_socket(connection, server_side=True))
            stream = open_streams.enter_context(connection.makefile("rb"))
        elif word == "AUTH" and sink.login:
            import base64

            given = base64.b64decode(text.split()[2]).decode().split("\0")[1:]
            is_known = tuple(given) == sink.login
            say("235 ok" if is_known else "535 no")
        elif word == "MAIL":
            sender, _, options = text.partition("<")[2].partition(">")
            say("250 ok" if is_known else "530 log in")
        elif word == "RCPT":
            address = text.partition("<")[2].partition(">")[0]
            answer = sink.refuse.get(address, "250 ok")
            if answer.startswith("250"):
                rcpt.append(address)
            say(answer)
        elif word == "DATA":
            say("354 go on")
            lines = []
            while (line := stream.readline()) != b".\r\n":
                if not line:
                    raise _HungUp
                lines.append(line[1:] if line.startswith(b".") else line)
            if sink.answer_to_data.startswith(("250", "!")) or not sink.answer_to_data:
                sink.arrived.append(Arrived(sender, rcpt, b"".join(lines), options))
            hear(".")
            if not sink.answer_to_data or sink.answer_to_data.startswith("!"):
                raise _HungUp
            say(sink.answer_to_data)
            sender, rcpt = "", []
        elif word == "QUIT":
            say("221 bye")
            return
        else:
            say("250 ok")
