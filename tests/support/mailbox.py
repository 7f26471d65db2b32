"""An IMAP mailbox on loopback: LOGIN, SELECT, APPEND, UID SEARCH HEADER, UID STORE, UID EXPUNGE, and no more."""

from __future__ import annotations

import re
import socketserver
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class Draft:
    """One message in the folder."""

    data: bytes
    flags: set[str]


@dataclass
class Mailbox:
    """One folder, by uid. `dies_after` ends the connection after so many commands of that name were done."""

    password: str = "right"
    has_uidplus: bool = True
    drafts: dict[int, Draft] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    dies_after: str = ""
    talking: int = 0

    def settle(self) -> None:
        """Wait until all that was asked for is done, also by a client that died since."""
        while True:
            before = len(self.heard)
            time.sleep(0.003)
            if not self.talking and len(self.heard) == before:
                return

    def __enter__(self) -> Mailbox:
        mailbox = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                mailbox.talking += 1
                try:
                    _serve(mailbox, self)
                except OSError:
                    return
                finally:
                    mailbox.talking -= 1

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Connection)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])


def _serve(mailbox: Mailbox, stream: socketserver.StreamRequestHandler) -> None:
    def say(text: str) -> None:
        stream.wfile.write(text.encode() + b"\r\n")

    is_known = False
    say("* OK ready")
    while line := stream.rfile.readline():
        tag, _, rest = line.decode().rstrip("\r\n").partition(" ")
        words = rest.split(" ")
        name = " ".join(words[:2]).upper() if words[0].upper() == "UID" else words[0].upper()
        mailbox.heard.append(name)
        answer = "OK done"
        if name == "CAPABILITY":
            say("* CAPABILITY IMAP4rev1" + (" UIDPLUS" if mailbox.has_uidplus and is_known else ""))
        elif name == "LOGIN":
            is_known = words[2].strip('"') == mailbox.password
            answer = "OK in" if is_known else "NO wrong password"
        elif name == "SELECT":
            say(f"* {len(mailbox.drafts)} EXISTS")
        elif name == "APPEND":
            size = int(re.search(r"\{(\d+)\}$", rest).group(1))  # type: ignore[union-attr]
            say("+ go on")
            data = stream.rfile.read(size)
            if not stream.rfile.readline():
                return  # the client died in the middle of it
            flags = set(re.search(r"\((.*?)\)", rest).group(1).split())  # type: ignore[union-attr]
            mailbox.drafts[max(mailbox.drafts, default=0) + 1] = Draft(data, flags)
        elif name == "UID SEARCH":
            field, wanted = words[4], words[5].strip('"')
            found = [
                str(uid)
                for uid, draft in mailbox.drafts.items()
                if f"{field}: {wanted}\r\n".encode() in draft.data
                and (words[2] == "ALL" or "\\Deleted" not in draft.flags)
            ]
            say("* SEARCH " + " ".join(found))
        elif name == "UID STORE":
            mailbox.drafts[int(words[2])].flags.add("\\Deleted")
        elif name == "UID EXPUNGE":
            del mailbox.drafts[int(words[2])]
        elif name == "LOGOUT":
            say("* BYE")
        if name == mailbox.dies_after:
            return
        say(f"{tag} {answer}")
        if name == "LOGOUT":
            return
