"""Where an undo request may go: to the origin of the effect that it undoes, at an address that is pinned."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from reprieve.effects.wire import origin
from reprieve.errors import Refused


def address_for(forward: str, url: str) -> str:
    """The address to connect to. Raises Refused for another origin than the effect's."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused(f"'{url}' is no address on the web; nothing was sent")
    if parts.username or parts.password:
        raise Refused("a URL with a user name or password in it is not sent; use a credential reference")
    if origin(url) != forward:
        raise Refused(
            f"the undo goes to {origin(url)}, the effect went to {forward or 'nowhere known'}; nothing was sent"
        )
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 0, type=socket.SOCK_STREAM)
    except OSError as e:
        raise Refused(f"'{parts.hostname}' has no address ({e.strerror or e})") from e
    return str(found[0][4][0])
