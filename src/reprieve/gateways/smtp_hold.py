"""A mail server on loopback that holds what programs send: 250 only when the message is durable, 451 otherwise.

    python -P -m reprieve.gateways.smtp_hold ROOT

Prints its port as the first line, and ends when standard input does: it never outlives who started it.
"""

from __future__ import annotations

import os
import socketserver
import sys
import threading

from reprieve.app import mail
from reprieve.app.finding import open_workspace
from reprieve.errors import ReprieveError
from reprieve.gateways.smtp_talk import GREETING, Received, Talk

_IDLE_S = 300.0


class HoldServer(socketserver.ThreadingTCPServer):
    """Listens on a free port of 127.0.0.1."""

    allow_reuse_address = False
    daemon_threads = True

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def hold(self, message: Received) -> tuple[str, str]:
        """The id that it is held under, and what went wrong ("" if nothing did)."""
        try:
            with open_workspace(self.root) as ws:
                letter = mail.adopt(ws, message.data, sender=message.sender, rcpt=message.rcpt)
                return mail.stage(ws, letter).effect.id, ""
        except ReprieveError as e:
            return "", e.message
        except (OSError, ValueError) as e:
            return "", str(e)


class _Connection(socketserver.BaseRequestHandler):
    server: HoldServer

    def handle(self) -> None:
        self.request.settimeout(_IDLE_S)
        talk = Talk()
        try:
            self.request.sendall(GREETING)
            while not talk.is_over:
                more = self.request.recv(65536)
                if not more:
                    return  # what was not ended by a dot is no message
                for step in talk.feed(more):
                    if isinstance(step, Received):
                        step = talk.answered(*self.server.hold(step))
                    self.request.sendall(step)
        except OSError:
            return  # the client went away; what was answered with 250 is held


def main() -> int:
    """Serve until standard input ends."""
    with HoldServer(sys.argv[1]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.write(1, b"%d\n" % server.port)
        while os.read(0, 4096):
            continue
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
