"""Keep held messages as drafts in an IMAP mailbox, where their owner can read them; a release sends them by SMTP.

Each draft names the held message that it is (`X-Reprieve-Hold`): a stage that was interrupted finds its draft again
instead of making a second one, and nothing else in the folder is ever touched.
"""

from __future__ import annotations

import imaplib
import ssl

from reprieve.effects import mime
from reprieve.effects.credentials import resolve
from reprieve.effects.mail import HOLD_FIELD, SENT, UNSENT, UNSURE, Delivery
from reprieve.effects.mail_smtp import Server, is_loopback
from reprieve.errors import Misconfigured, ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.effects.mail import Backend
    from reprieve.effects.mime import Letter
    from reprieve.model.effect import Json

_TIMEOUT_S = 30.0
_PORTS = {"starttls": 143, "tls": 993, "none": 143}
_FAULTS = (OSError, imaplib.IMAP4.error, ReprieveError)


class ImapDrafts:
    """A folder of drafts, and the server that sends them."""

    def __init__(self, server: Server, folder: str, sender: Backend) -> None:
        self._server, self._folder, self._sender = server, folder, sender

    def prepare(self) -> None:
        server = self._server
        if not server.host or not server.user:
            raise Misconfigured(
                "no IMAP mailbox is set",
                hints=[
                    "reprieve config set mail.imap_host imap.example.org",
                    "reprieve config set mail.imap_user NAME",
                ],
            )
        if server.security == "none" and not is_loopback(server.host):
            raise Misconfigured(
                f"a password is not sent to {server.host} without encryption",
                hints=["reprieve config set mail.imap_security tls"],
            )
        resolve(server.password)
        self._sender.prepare()

    def must_fit(self, letter: Letter) -> None:
        self._sender.must_fit(letter)

    def stage(self, id: str, letter: Letter) -> tuple[Json | None, str]:
        copy = mime.with_fields(letter.data, [(HOLD_FIELD, id), *_hidden(letter)])
        try:
            connection = self._connect()
        except _FAULTS as e:
            return None, f"no draft was made in the mailbox: {_said(e)}"
        try:
            if not _find(connection, id):
                _must(connection.append(_quoted(self._folder), r"(\Draft \Seen)", "", copy))
            return {"draft": self._folder}, ""
        except _FAULTS as e:
            return None, f"a draft may not have been made in the mailbox: {_said(e)}"
        finally:
            _leave(connection)

    def send(self, id: str, letter: Letter, draft: Json | None) -> Delivery:
        there = self.is_there(id, letter, draft)
        if draft and there is None:
            return Delivery(UNSENT, "not sent: the mailbox with its draft can't be reached")
        if draft and not there:
            return Delivery(UNSURE, "its draft is gone from the mailbox: it was sent or deleted there")
        delivery = self._sender.send(id, letter, None)
        if delivery.state == SENT:
            problem = self.drop(id, letter, draft)
            if problem:
                return delivery.replace(detail=f"{delivery.detail}; its draft is still in the mailbox: {problem}")
        return delivery

    def is_there(self, id: str, letter: Letter, draft: Json | None) -> bool | None:
        try:
            connection = self._connect()
        except _FAULTS:
            return None
        try:
            return bool(_find(connection, id))
        except _FAULTS:
            return None
        finally:
            _leave(connection)

    def drop(self, id: str, letter: Letter, draft: Json | None) -> str:
        try:
            connection = self._connect()
        except _FAULTS as e:
            return _said(e)
        try:
            for number in _find(connection, id, is_deleted_too=True):  # marked by one that was interrupted
                _must(connection.uid("STORE", number, "+FLAGS.SILENT", r"(\Deleted)"))
                if not _has_uidplus(connection):
                    # a plain EXPUNGE would take along what its owner marked
                    return "it is marked as deleted; this server removes it when the folder is cleaned up"
                _must(connection.uid("EXPUNGE", number))
            return ""
        except _FAULTS as e:
            return _said(e)
        finally:
            _leave(connection)

    def _connect(self) -> imaplib.IMAP4:
        server = self._server
        self.prepare()
        port = server.port or _PORTS[server.security]
        connection: imaplib.IMAP4
        if server.security == "tls":
            connection = imaplib.IMAP4_SSL(
                server.host, port, ssl_context=ssl.create_default_context(), timeout=_TIMEOUT_S
            )
        else:
            connection = imaplib.IMAP4(server.host, port, timeout=_TIMEOUT_S)
        try:
            if server.security == "starttls":
                connection.starttls(ssl.create_default_context())
            connection.login(server.user, resolve(server.password))
            _must(connection.select(_quoted(self._folder)))
        except BaseException:
            connection.shutdown()
            raise
        return connection


def _find(connection: imaplib.IMAP4, id: str, *, is_deleted_too: bool = False) -> list[str]:
    """The numbers of its drafts; without those that are marked as deleted, unless they are wanted too."""
    among = "ALL" if is_deleted_too else "UNDELETED"
    found = _must(connection.uid("SEARCH", among, "HEADER", HOLD_FIELD, f'"{id}"'))
    return [number.decode() for line in found if line for number in line.split()]


def _has_uidplus(connection: imaplib.IMAP4) -> bool:
    """Asked now: before the login servers offer less."""
    return b"UIDPLUS" in b" ".join(_must(connection.capability())).upper().split()


def _must(answer: tuple[str, Sequence[object]]) -> list[bytes]:
    word, lines = answer
    if word != "OK":
        said = b" ".join(line for line in lines if isinstance(line, bytes)).decode("utf-8", "replace")
        raise imaplib.IMAP4.error(said or word)
    return [line for line in lines if isinstance(line, bytes)]


def _hidden(letter: Letter) -> list[tuple[str, str]]:
    """Who gets it without being named, for the copy that its owner sees."""
    named = mime.receivers_of(letter.data)
    hidden = [address for address in letter.rcpt if address not in named]
    return [("Bcc", ", ".join(hidden))] if hidden else []


def _quoted(folder: str) -> str:
    return '"' + folder.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _leave(connection: imaplib.IMAP4) -> None:
    try:
        connection.logout()
    except (OSError, imaplib.IMAP4.error):
        connection.shutdown()  # what was asked for is answered, or never will be


def _said(error: Exception) -> str:
    if isinstance(error, ReprieveError):
        return error.message
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
