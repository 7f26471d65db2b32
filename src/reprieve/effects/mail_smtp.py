"""Send a held message to a mail server by SMTP, and tell exactly how far it came.

connect, STARTTLS, AUTH, MAIL, RCPT …    fails: certainly not sent
DATA, the message, its last dot          breaks: nobody can tell
the server's answer                      250: it is the server's now; 4xx, 5xx: the server did not take it
"""

from __future__ import annotations

import smtplib
import socket
import ssl

from reprieve.effects.credentials import resolve
from reprieve.effects.mail import SENT, UNSENT, UNSURE, Delivery
from reprieve.errors import Misconfigured, Refused, ReprieveError
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.effects.mime import Letter
    from reprieve.model.effect import Json

_COMMAND_S = 30.0
_ANSWER_S = 300.0  # a server may look at the message before it answers; giving up early leaves us not knowing
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class Server(Value):
    """Where mail is handed over. `password` is a credential reference."""

    host: str
    port: int = 0  # 0: the usual one
    security: str = "starttls"  # starttls, tls, none
    user: str = ""
    password: str = ""


class SmtpBackend:
    """Hands messages to one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def prepare(self) -> None:
        server = self._server
        if not server.host:
            raise Misconfigured(
                "no mail server is set; the message stays held",
                hints=["reprieve config set mail.smtp_host smtp.example.org"],
            )
        if server.user and server.security == "none" and not is_loopback(server.host):
            raise Misconfigured(
                f"a password is not sent to {server.host} without encryption",
                hints=["reprieve config set mail.smtp_security starttls"],
            )
        if server.user:
            resolve(server.password)

    def must_fit(self, letter: Letter) -> None:
        """Any message will do."""

    def stage(self, id: str, letter: Letter) -> tuple[Json | None, str]:
        return None, ""

    def is_there(self, id: str, letter: Letter, draft: Json | None) -> bool | None:
        return None

    def drop(self, id: str, letter: Letter, draft: Json | None) -> str:
        return ""

    def send(self, id: str, letter: Letter, draft: Json | None) -> Delivery:
        try:
            self.prepare()
            connection = self._connect()
        except (OSError, smtplib.SMTPException) as e:
            return Delivery(UNSENT, f"not sent: {self._name}: {_said(e)}")
        except ReprieveError as e:
            return Delivery(UNSENT, f"not sent: {e.message}")
        try:
            return self._hand_over(connection, letter)
        finally:
            connection.close()

    @property
    def _name(self) -> str:
        return f"{self._server.host}:{self._server.port or _PORTS[self._server.security]}"

    def _connect(self) -> smtplib.SMTP:
        server = self._server
        port = server.port or _PORTS[server.security]
        me = socket.gethostname() or "localhost"
        connection: smtplib.SMTP
        if server.security == "tls":
            context = ssl.create_default_context()
            connection = smtplib.SMTP_SSL(server.host, port, me, timeout=_COMMAND_S, context=context)
        else:
            connection = smtplib.SMTP(server.host, port, me, timeout=_COMMAND_S)
        try:
            connection.ehlo_or_helo_if_needed()
            if server.security == "starttls":
                connection.starttls(context=ssl.create_default_context())
                connection.ehlo_or_helo_if_needed()
            if server.user:
                connection.login(server.user, resolve(server.password))
        except BaseException:
            connection.close()
            raise
        return connection

    def _hand_over(self, connection: smtplib.SMTP, letter: Letter) -> Delivery:
        try:
            options = _options(connection, letter)
            code, text = connection.mail(letter.sender, options)
            if code != 250:
                return Delivery(UNSENT, f"not sent: {self._name} refused the sender: {code} {_text(text)}")
            accepted, refused = [], []
            for address in letter.rcpt:
                code, text = connection.rcpt(address)
                if code in (250, 251, 252):
                    accepted.append(address)
                else:
                    refused.append((address, f"{code} {_text(text)}"))
            if not accepted:
                words = "; ".join(f"{address}: {said}" for address, said in refused)
                return Delivery(UNSENT, f"not sent: {self._name} refused every recipient: {words}")
            code, text = connection.docmd("DATA")
            if code != 354:
                return Delivery(UNSENT, f"not sent: {self._name} did not take the message: {code} {_text(text)}")
        except (OSError, smtplib.SMTPException) as e:
            return Delivery(UNSENT, f"not sent: {self._name}: {_said(e)}")
        except Refused as e:
            return Delivery(UNSENT, f"not sent: {e.message}")
        try:
            if connection.sock is not None:
                connection.sock.settimeout(_ANSWER_S)
            connection.send(dotted(letter.data))
            code, text = connection.getreply()
        except (OSError, smtplib.SMTPException) as e:
            return Delivery(UNSURE, f"{self._name} did not answer after the message was sent: {_said(e)}")
        if 400 <= code < 600:
            return Delivery(UNSENT, f"not sent: {self._name} refused the message: {code} {_text(text)}")
        if not 200 <= code < 300:
            return Delivery(UNSURE, f"{self._name} gave an answer that means nothing: {code} {_text(text)}")
        _quit(connection)
        return _taken(self._name, f"{code} {_text(text)}", accepted, refused)


def dotted(data: bytes) -> bytes:
    """The message as it goes over the wire: leading dots doubled, and the dot that ends it."""
    data = data.replace(b"\r\n.", b"\r\n..")
    if data.startswith(b"."):
        data = b"." + data
    return data + (b".\r\n" if data.endswith(b"\r\n") else b"\r\n.\r\n")


def is_loopback(host: str) -> bool:
    """Whether it is this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _taken(name: str, said: str, accepted: list[str], refused: list[tuple[str, str]]) -> Delivery:
    detail = f"sent: {name} took it for {', '.join(accepted)}: {said}"
    if refused:
        words = "; ".join(f"{address}: {text}" for address, text in refused)
        detail = (
            f"sent to {len(accepted)} of {len(accepted) + len(refused)}: {name} took it for {', '.join(accepted)}"
            f" and refused {words}"
        )
    return Delivery(SENT, detail, tuple(accepted), tuple(refused))


def _options(connection: smtplib.SMTP, letter: Letter) -> list[str]:
    """What must be said about the message. Raises Refused if the server can't take it as it is."""
    options = []
    if connection.has_extn("size"):
        options.append(f"size={len(letter.data)}")
    head = letter.data.partition(b"\r\n\r\n")[0]
    if not all(address.isascii() for address in (letter.sender, *letter.rcpt)) or not head.isascii():
        if not connection.has_extn("smtputf8"):
            raise Refused("the mail server takes no addresses or header fields outside of ASCII (SMTPUTF8)")
        connection.command_encoding = "utf-8"
        options.append("SMTPUTF8")
    if not letter.data.isascii():
        if not connection.has_extn("8bitmime"):
            raise Refused("the mail server takes no 8-bit messages (8BITMIME)")
        options.append("BODY=8BITMIME")
    return options


def _quit(connection: smtplib.SMTP) -> None:
    try:
        connection.docmd("QUIT")
    except (OSError, smtplib.SMTPException):
        return  # it has the message already


def _said(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _text(raw: bytes | str) -> str:
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    return " ".join(text.split())[:300]
