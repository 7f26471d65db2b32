"""Servers on loopback, each in a thread, for as long as a block lasts."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Listening:
    """A server of a line-based protocol. `heard`: what clients said; `talking`: how many of them are connected."""

    heard: list[str]
    talking: int

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        """Talk with one client. OSError: it is gone."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all that was asked for is done, also by a client that died since."""
        while True:
            before = len(self.heard)
            time.sleep(0.003)
            if not self.talking and len(self.heard) == before:
                return

    def __enter__(self) -> Self:
        listening = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                listening.talking += 1
                try:
                    listening.serve(self)
                except OSError:
                    return
                finally:
                    listening.talking -= 1

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

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


@contextmanager
def answering(server: socketserver.TCPServer) -> Iterator[str]:
    """Its address, while it answers."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
