"""An IMAP mailbox on loopback: LOGIN, SELECT, APPEND, UID SEARCH HEADER, UID STORE, UID EXPUNGE, and no more."""

from __future__ import annotations

import re
import socketserver
from dataclasses import dataclass, field

from support.listening import Listening


@dataclass
class Draft:
    """One message in the folder."""

    data: bytes
    flags: set[str]


@dataclass
class Mailbox(Listening):
    """One folder, by uid. `dies_after` ends the connection after so many commands of that name were done."""

    password: str = "right"
    has_uidplus: bool = True
    drafts: dict[int, Draft] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    dies_after: str = ""
    talking: int = 0

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        _serve(self, stream)


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
