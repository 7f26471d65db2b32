"""One HTTP request for an undo: to an address that was checked, without redirects, proxies or surprises."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from urllib.parse import SplitResult, quote, urlsplit

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # origin of the forward call, url, address of the forward call if known → the address to connect to. Raises Refused.
    Egress = Callable[[str, str, str], str]

TIMEOUT_S = 30.0
_PLAIN = "%/:?#[]@!$&'()*+,;=-._~|^`{}\"<>\\"  # what is left as somebody wrote it: servers have their own ways with it
MOST = 1 << 20  # bytes of an answer that are read; nothing in it is needed whole


class Answer(Value):
    """What came back. status 0: nothing did, `detail` says what is known; is_unsent: the request never left."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    detail: str = ""
    is_unsent: bool = False

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


class OwnConnection(http.client.HTTPConnection):
    """A connection of ours: what goes over it is an undo, and is not recorded as a call of the program."""


def origin(url: str) -> str:
    """scheme://host:port of a URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def send(
    method: str,
    url: str,
    *,
    address: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Send it once. Whatever the network does is an answer, never an exception."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    until = time.monotonic() + timeout_s
    try:
        sock = socket.create_connection((address, port), timeout=min(10.0, timeout_s))
    except OSError as e:
        return Answer(0, detail=f"could not connect to {host}:{port} ({e.strerror or e})", is_unsent=True)
    connection = OwnConnection(host, port, timeout=timeout_s)
    try:
        if parts.scheme == "https":
            try:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            except (OSError, ssl.SSLError) as e:
                return Answer(0, detail=f"no secure connection to {host}: {e}", is_unsent=True)
        connection.sock = sock
        try:
            try:
                connection.request(method, _target(parts), body=body, headers=dict(headers))
            except (ValueError, http.client.InvalidURL) as e:  # found before the first byte leaves
                return Answer(0, detail=f"it can't be sent as it is written down ({e})", is_unsent=True)
            response = connection.getresponse()
            data = _read(response, sock, until)
        except (OSError, http.client.HTTPException) as e:
            return Answer(0, detail=f"the connection broke before the whole answer came ({e or type(e).__name__})")
        return Answer(response.status, tuple(response.getheaders()), data)
    finally:
        connection.close()
        sock.close()


def _target(parts: SplitResult) -> str:
    """Path and query as HTTP writes them: other letters, and bytes that are no text, by their numbers."""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return quote(target.encode("utf-8", "surrogateescape"), safe=_PLAIN)


def _read(response: http.client.HTTPResponse, sock: socket.socket, until: float) -> bytes:
    """What it says, up to a size and a time: the status is known already."""
    data = b""
    while len(data) < MOST:
        left = until - time.monotonic()
        if left <= 0:
            break
        sock.settimeout(left)
        try:
            more = response.read1(65536)
        except TimeoutError:
            break
        if not more:
            break
        data += more
    return data
