"""What sends held mail: exactly what was staged, once, and the truth about how far it came."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.effects import mime
from reprieve.effects.journal import Journal, Place
from reprieve.effects.mail import HOLD_FIELD, Mailroom
from reprieve.effects.mail_imap import ImapDrafts
from reprieve.effects.mail_smtp import Server, SmtpBackend
from reprieve.effects.mail_web import GmailDrafts, GraphDrafts
from reprieve.effects.mime import Letter
from reprieve.errors import Misconfigured, Refused
from support.mailbox import Mailbox
from support.postoffice import Sink
from support.webmail import Webmail, webmail

HARD = b"From: a@x.org\r\nTo: b@y.org\r\nSubject: s\r\n\r\n.\r\n..\r\n.x\r\nline\r\n.\r\nQUIT\r\n.\r\n"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "right")


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as mailbox:
        yield mailbox


def letter(raw: bytes = HARD, *more: str) -> Letter:
    return mime.adopt(raw, rcpt=[*mime.receivers_of(raw), *more], now_s=1.8e9)


def smtp(sink: Sink, **more: object) -> SmtpBackend:
    return SmtpBackend(Server(**{"host": "127.0.0.1", "port": sink.port, "security": "none", **more}))  # type: ignore[arg-type]


def room(journal: Journal, backend: Any) -> Mailroom:
    return Mailroom(journal, journal.log.home, lambda _: backend)


# -- SMTP


def test_bad_case_30_dot_lines_arrive_as_they_were(sink: Sink) -> None:
    sent = letter()
    assert smtp(sink).send("1", sent, None).state == "sent"
    assert sink.arrived[0].data == sent.data and len(sink.arrived) == 1


def test_bad_case_30_eight_bit_is_announced_or_not_sent(sink: Sink) -> None:
    sent = letter(HARD.replace(b"line", "ß\xff".encode("latin-1")))
    assert smtp(sink).send("1", sent, None).state == "sent"
    assert "BODY=8BITMIME" in sink.arrived[0].options and sink.arrived[0].data == sent.data
    sink.extensions = ()
    assert smtp(sink).send("2", sent, None).state == "unsent" and len(sink.arrived) == 1


def test_addresses_outside_of_ascii_need_a_server_that_takes_them(sink: Sink) -> None:
    sent = letter(HARD, "jürgen@y.org")
    assert smtp(sink).send("1", sent, None).state == "sent" and sink.arrived[0].rcpt[1] == "jürgen@y.org"
    sink.extensions = ("8BITMIME",)
    assert smtp(sink).send("2", sent, None).state == "unsent" and len(sink.arrived) == 1


@pytest.mark.parametrize("word", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA"])
def test_bad_case_3_a_connection_that_breaks_before_the_message_is_certainly_unsent(sink: Sink, word: str) -> None:
    def hang_up(said: str) -> None:
        if said == word:
            raise OSError

    sink.hear = hang_up
    delivery = smtp(sink).send("1", letter(), None)
    assert delivery.state == "unsent" and sink.arrived == []


def test_bad_case_3_a_connection_that_breaks_after_the_message_is_unsure(sink: Sink) -> None:
    sink.answer_to_data = ""
    assert smtp(sink).send("1", letter(), None).state == "unsure" and len(sink.arrived) == 1


@pytest.mark.parametrize("answer", ["999 what", "354 again"])
def test_an_answer_that_means_nothing_is_unsure(sink: Sink, answer: str) -> None:
    sink.answer_to_data = answer
    assert smtp(sink).send("1", letter(), None).state == "unsure"


def test_all_recipients_refused_is_unsent(sink: Sink) -> None:
    sink.refuse = {"b@y.org": "550 no", "c@y.org": "450 later"}
    delivery = smtp(sink).send("1", letter(HARD, "c@y.org"), None)
    assert delivery.state == "unsent" and "550 no" in delivery.detail and "450 later" in delivery.detail


def test_a_password_is_not_sent_without_encryption() -> None:
    backend = SmtpBackend(Server("mail.example.org", 25, "none", "me", "env:MAIL_PASSWORD"))
    with pytest.raises(Misconfigured):
        backend.prepare()
    assert backend.send("1", letter(), None).state == "unsent"


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
               "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
               "subjectAltName=DNS:localhost"]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    return context


def test_starttls_and_login(sink: Sink, certificate: ssl.SSLContext) -> None:
    sink.tls, sink.login = certificate, ("me", "right")
    backend = smtp(sink, host="localhost", security="starttls", user="me", password="env:MAIL_PASSWORD")
    assert backend.send("1", letter(), None).state == "sent"
    assert sink.heard[:5] == ["CONNECT", "EHLO", "STARTTLS", "EHLO", "AUTH"]


def test_a_server_without_tls_or_with_a_foreign_certificate_gets_nothing(
    sink: Sink, certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = smtp(sink, host="localhost", security="starttls", user="me", password="env:MAIL_PASSWORD")
    assert backend.send("1", letter(), None).state == "unsent"
    sink.tls = certificate
    monkeypatch.delenv("SSL_CERT_FILE")
    assert backend.send("1", letter(), None).state == "unsent"
    assert "AUTH" not in sink.heard and "MAIL" not in sink.heard


# -- drafts in an IMAP mailbox


def imap(mailbox: Mailbox, sink: Sink) -> ImapDrafts:
    server = Server("127.0.0.1", mailbox.port, "none", "me", "env:MAIL_PASSWORD")
    return ImapDrafts(server, "Drafts", smtp(sink))


def test_an_imap_draft_is_for_its_owner_and_goes_when_it_is_sent(
    journal: Journal, mailbox: Mailbox, sink: Sink
) -> None:
    desk = room(journal, imap(mailbox, sink))
    outcome = desk.stage(letter(HARD, "hidden@y.org"), "imap", Place(), subject="s")
    (draft,) = mailbox.drafts.values()
    assert draft.flags == {"\\Draft", "\\Seen"} and f"{HOLD_FIELD}: {outcome.effect.id}".encode() in draft.data
    assert b"Bcc: hidden@y.org" in draft.data and outcome.effect.after == {"draft": "Drafts"}
    done = desk.release(outcome.effect)
    assert done.effect.state == "done" and mailbox.drafts == {}
    assert HOLD_FIELD.encode() not in sink.arrived[0].data and b"hidden" not in sink.arrived[0].data
    assert sink.arrived[0].rcpt == ["b@y.org", "hidden@y.org"]


def test_a_stage_that_was_interrupted_finds_its_draft_again(mailbox: Mailbox, sink: Sink) -> None:
    backend = imap(mailbox, sink)
    mailbox.dies_after = "APPEND"
    assert backend.stage("x1", letter())[0] is None
    mailbox.dies_after = ""
    assert backend.stage("x1", letter())[0] == {"draft": "Drafts"}
    backend.stage("x2", letter())
    assert len(mailbox.drafts) == 2


def test_cancel_removes_the_draft_and_nothing_else(journal: Journal, mailbox: Mailbox, sink: Sink) -> None:
    desk = room(journal, imap(mailbox, sink))
    outcome = desk.stage(letter(), "imap", Place(), subject="s")
    desk.stage(letter(HARD.replace(b"line", b"other")), "imap", Place(), subject="t")
    assert desk.cancel(outcome.effect).problem == "" and len(mailbox.drafts) == 1


def test_without_uidplus_nothing_is_expunged_and_that_is_said(journal: Journal, mailbox: Mailbox, sink: Sink) -> None:
    mailbox.has_uidplus = False
    desk = room(journal, imap(mailbox, sink))
    outcome = desk.cancel(desk.stage(letter(), "imap", Place(), subject="s").effect)
    assert "marked as deleted" in outcome.problem and "UID EXPUNGE" not in mailbox.heard
    assert [draft.flags for draft in mailbox.drafts.values()] == [{"\\Draft", "\\Seen", "\\Deleted"}]


def test_a_mailbox_out_of_reach_still_holds_and_can_still_be_released(
    journal: Journal, mailbox: Mailbox, sink: Sink
) -> None:
    mailbox.password = "other"
    desk = room(journal, imap(mailbox, sink))
    outcome = desk.stage(letter(), "imap", Place(), subject="s")
    assert outcome.effect.state == "held" and "no draft was made" in outcome.problem
    mailbox.password = "right"
    assert desk.release(outcome.effect).effect.state == "done" and len(sink.arrived) == 1


@pytest.mark.parametrize("act", ["release", "cancel"])
def test_a_draft_that_is_gone_may_have_been_sent_by_hand(
    journal: Journal, mailbox: Mailbox, sink: Sink, act: str
) -> None:
    desk = room(journal, imap(mailbox, sink))
    effect = desk.stage(letter(), "imap", Place(), subject="s").effect
    mailbox.drafts.clear()
    outcome = getattr(desk, act)(effect)
    assert outcome.effect.state == "unknown" and "gone from the mailbox" in outcome.problem and sink.arrived == []
    with pytest.raises(Refused):
        desk.release(journal.get(effect.id))


def test_a_mailbox_that_cannot_be_asked_sends_nothing(journal: Journal, mailbox: Mailbox, sink: Sink) -> None:
    desk = room(journal, imap(mailbox, sink))
    effect = desk.stage(letter(), "imap", Place(), subject="s").effect
    mailbox.password = "other"
    assert desk.release(effect).effect.state == "held" and sink.arrived == []
    canceled = desk.cancel(journal.get(effect.id))
    assert canceled.effect.state == "canceled" and "still there" in canceled.problem and mailbox.drafts
    mailbox.password = "right"
    assert desk.cancel(journal.get(effect.id)).problem == "" and mailbox.drafts == {}


# -- drafts at a provider

MAKERS: dict[str, Callable[[Webmail], GmailDrafts | GraphDrafts]] = {
    "gmail": lambda mail: GmailDrafts(mail.url, "env:MAIL_PASSWORD"),
    "graph": lambda mail: GraphDrafts(mail.url, "env:MAIL_PASSWORD"),
}
SEND = {"gmail": "POST /users/me/drafts/send", "graph": "POST /me/messages/d2/send"}
CREATE = {"gmail": "POST /users/me/drafts", "graph": "POST /me/messages"}


@pytest.fixture(params=sorted(MAKERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mail(kind: str) -> Iterator[Webmail]:
    with webmail(kind) as mail:
        yield mail


@pytest.fixture
def desk(journal: Journal, mail: Webmail, kind: str) -> Mailroom:
    return room(journal, MAKERS[kind](mail))


def test_wb_27_any_2xx_is_sent_also_with_nothing_in_it(desk: Mailroom, mail: Webmail, kind: str) -> None:
    effect = desk.stage(letter(HARD, "hidden@y.org"), kind, Place(), subject="s").effect
    (draft,) = mail.drafts.values()
    assert b"Bcc: hidden@y.org\r\n" in draft and f"{HOLD_FIELD}: {effect.id}".encode() in draft and mail.sent == []
    assert desk.release(effect).effect.state == "done"
    assert mail.drafts == {} and mail.sent == [b"Bcc: hidden@y.org\r\n" + desk.letter(effect).data]


def test_a_draft_that_was_edited_is_replaced_by_what_was_staged(desk: Mailroom, mail: Webmail, kind: str) -> None:
    effect = desk.stage(letter(), kind, Place(), subject="s").effect
    (name,) = mail.drafts
    mail.drafts[name] = mail.drafts[name].replace(b"b@y.org", b"evil@y.org")
    assert desk.release(effect).effect.state == "done"
    assert mail.sent == [desk.letter(effect).data]


@pytest.mark.parametrize(
    ("status", "state", "count"),
    [(400, "held", 0), (403, "held", 0), (429, "held", 0), (500, "unknown", 0), (503, "unknown", 0), (0, "unknown", 1)],
)
def test_what_the_provider_says_decides(
    desk: Mailroom, mail: Webmail, kind: str, status: int, state: str, count: int
) -> None:
    effect = desk.stage(letter(), kind, Place(), subject="s").effect
    mail.fail[SEND[kind]] = status
    outcome = desk.release(effect)
    assert outcome.effect.state == state and len(mail.sent) == count


@pytest.mark.parametrize("act", ["release", "cancel"])
def test_a_draft_gone_at_the_provider_may_have_been_sent(desk: Mailroom, mail: Webmail, kind: str, act: str) -> None:
    effect = desk.stage(letter(), kind, Place(), subject="s").effect
    mail.drafts.clear()
    assert getattr(desk, act)(effect).effect.state == "unknown" and mail.sent == []


def test_cancel_deletes_the_draft(desk: Mailroom, mail: Webmail, kind: str) -> None:
    effect = desk.stage(letter(), kind, Place(), subject="s").effect
    outcome = desk.cancel(effect)
    assert (outcome.effect.state, outcome.problem, mail.drafts) == ("canceled", "", {})


def test_no_draft_no_harm(desk: Mailroom, mail: Webmail, kind: str) -> None:
    mail.fail[CREATE[kind]] = 503
    outcome = desk.stage(letter(), kind, Place(), subject="s")
    assert outcome.effect.state == "held" and "no draft was made" in outcome.problem
    del mail.fail[CREATE[kind]]
    assert desk.release(outcome.effect).effect.state == "done" and len(mail.sent) == 1


def test_a_draft_is_made_once_for_one_message(mail: Webmail, kind: str) -> None:
    backend, sent = MAKERS[kind](mail), letter()
    assert backend.stage("x1", sent) == backend.stage("x1", sent) and len(mail.drafts) == 1


def test_a_wrong_token_sends_nothing(desk: Mailroom, mail: Webmail, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = desk.stage(letter(), kind, Place(), subject="s").effect
    monkeypatch.setenv("MAIL_PASSWORD", "wrong")
    outcome = desk.release(effect)
    assert outcome.effect.state == "held" and "wrong" not in outcome.problem and mail.sent == []


def test_a_provider_that_would_send_to_others_is_not_used(desk: Mailroom, mail: Webmail, kind: str) -> None:
    other = mime.adopt(HARD, rcpt=["only@y.org"], now_s=1.8e9)
    with pytest.raises(Refused):
        desk.stage(other, kind, Place(), subject="s")
    assert mail.heard == [] and list(desk.waiting()) == []


def test_a_token_goes_to_https_only() -> None:
    with pytest.raises(Misconfigured):
        GmailDrafts("http://gmail.example.org", "env:MAIL_PASSWORD").prepare()
