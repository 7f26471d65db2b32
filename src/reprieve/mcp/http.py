"""Serve over HTTP, to programs of this machine that hold the token, and to no page in a browser.

Every request passes one door before the protocol sees it, whatever its path and method:

    Host is this server's own name          else 421   a page that rebound its name to 127.0.0.1
    Origin is absent or this server's own   else 403   any page
    a bearer token, compared in constant time   else 401, and 429 after many wrong ones; 503: its file can't be used
    POST carries application/json           else 415   forms and fetches that need no preflight
    the body is at most 4 MiB               else 413
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from reprieve.app import places
from reprieve.errors import Misconfigured, Usage
from reprieve.mcp.server import make
from reprieve.mcp.stdio import LONGEST
from reprieve.store.home import open_home

ADDRESS, PATH = "127.0.0.1", "/mcp"
_FILE = "mcp.token"
_WRONG, _WINDOW_S = 20, 60.0  # wrong tokens in a minute after which guessing is told to wait
_SESSIONS = 200
_NEW = "reprieve mcp --http --new-token"

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Token:
    """The secret in its file. Whoever replaces or removes the file revokes it for the next request."""

    def __init__(self, path: str) -> None:
        self.path = path

    def make(self, *, is_new: bool = False) -> None:
        """Make one if there is none, or a new one. Never readable for others, at no moment."""
        if os.path.lexists(self.path) and not is_new:
            self.read()
            return
        scratch = f"{self.path}.{secrets.token_hex(8)}"
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(fd)
        os.replace(scratch, self.path)

    def read(self) -> str:
        """The token; "" if there is none any more. Raises Misconfigured if the file can't be used as one."""
        try:
            # not waiting for whoever would write into a pipe
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        except OSError as e:
            raise Misconfigured(f"'{self.path}' cannot be read: {e.strerror}", hints=[_NEW]) from e
        try:
            st = os.fstat(fd)
            if st.st_mode & 0o077 or st.st_uid != os.geteuid():
                raise Misconfigured(f"'{self.path}' can be read by others, so it is no secret", hints=[_NEW])
            return os.read(fd, 200).decode("ascii").strip() if stat.S_ISREG(st.st_mode) else ""
        except (OSError, UnicodeDecodeError) as e:
            raise Misconfigured(f"'{self.path}' holds no token", hints=[_NEW]) from e
        finally:
            os.close(fd)


class Door:
    """What every request has to pass."""

    def __init__(
        self,
        app: App,
        token: Token,
        port: int,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._token, self._say, self._clock = app, token, say, clock
        self._said = ""  # what is wrong with the token's file; told once, not with each request
        names = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._hosts, self._origins = names, {f"http://{name}" for name in names}
        self._wrong: deque[float] = deque(maxlen=_WRONG)

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSockets here; closing without an answer refuses the handshake
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        refusal = self._refusal(scope["method"], headers)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, text = refusal
        extra = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        if status == 401:
            extra["WWW-Authenticate"] = 'Bearer realm="reprieve"'
        if status == 429:
            extra["Retry-After"] = str(int(_WINDOW_S))
        await PlainTextResponse(text + "\n", status_code=status, headers=extra)(scope, receive, send)

    def _refusal(self, method: str, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        if [host.lower() for host in headers.get("host", ())] not in [[name] for name in self._hosts]:
            return 421, "this server is reached by 127.0.0.1 or localhost only"
        if any(origin not in self._origins for origin in headers.get("origin", ())):
            return 403, "pages of other origins have no access"
        try:
            wanted = self._token.read()
            self._said = ""
        except Misconfigured as e:
            if self._said != e.message:
                self._said = e.message
                self._say(f"No request is served: {e.message}. {' '.join(f'Hint: {hint}' for hint in e.hints)}")
            return 503, "the token of this server can't be used; see what it says"
        if not _is_known(headers.get("authorization", []), wanted):
            now = self._clock()
            is_guessing = len(self._wrong) == _WRONG and now - self._wrong[0] < _WINDOW_S
            self._wrong.append(now)
            return (429, "too many wrong tokens") if is_guessing else (401, "the token is missing or wrong")
        kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return 415, "the body has to be application/json"
        return None


def _is_known(given: list[str], wanted: str) -> bool:
    if not wanted or len(given) != 1:
        return False
    scheme, _, token = given[0].partition(" ")
    is_same = hmac.compare_digest(token.strip().encode("latin-1"), wanted.encode())
    return scheme.lower() == "bearer" and is_same


def serve_http(start: str, port: int, *, say: Callable[[str], None], is_new_token: bool = False) -> None:
    """Serve until interrupted, on loopback only."""
    home = open_home(places.home(), create=True)
    token = Token(home.file(_FILE))
    token.make(is_new=is_new_token)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        listening.listen(128)  # now, so that who reads the address below can connect
    except OSError as e:
        raise Usage(f"port {port} cannot be used: {e.strerror}", hints=["another one: --port N"]) from e
    with listening:
        port = listening.getsockname()[1]
        say(f"Serving '{os.path.realpath(start)}' at http://{ADDRESS}:{port}{PATH}")
        say(f"Clients send 'Authorization: Bearer TOKEN'; the token is in {token.path}")
        inner = make(start).streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=LONGEST,
            max_sessions=_SESSIONS,
            # the door has looked at both already, by exact names
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        config = uvicorn.Config(
            Door(inner, token, port, say=say), log_level="warning", access_log=False, server_header=False, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listening])
