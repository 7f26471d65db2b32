"""Messages: what is built cannot be broken out of, and what comes in leaves clean."""

from __future__ import annotations

from email import message_from_bytes, policy

import pytest

from reprieve.effects import mime
from reprieve.effects.mime import Attachment, Letter
from reprieve.errors import Usage

EVERY_BYTE = bytes(range(256)) * 300


def compose(**more: object) -> Letter:
    values: dict[str, object] = {"sender": "a@x.org", "to": ["b@y.org"], "subject": "s", "text": "t", "now_s": 1.8e9}
    return mime.compose(**{**values, **more})  # type: ignore[arg-type]


def adopt(raw: bytes, **more: object) -> Letter:
    return mime.adopt(raw, now_s=1.8e9, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\x1c", "\0"])
@pytest.mark.parametrize("where", ["subject", "sender", "to", "cc", "bcc"])
def test_wb_44_no_value_can_add_a_header_field(where: str, end: str) -> None:
    value = f"hi{end}Bcc: evil@x.org" if where == "subject" else f"a@x.org{end}Bcc: evil@x.org"
    with pytest.raises(Usage):
        compose(**{where: value if where in ("subject", "sender") else [value]})


def test_wb_44_the_name_of_an_attachment_cannot_either() -> None:
    with pytest.raises(Usage):
        compose(attachments=[Attachment('a"\r\nBcc: evil@x.org\r\nX: ".txt', b"")])
    letter = compose(attachments=[Attachment('a"; filename="b.exe', b"x")])
    assert [name for _, name, _ in mime.parts(letter.data)][1] == 'a"; filename="b.exe'


@pytest.mark.parametrize("address", ["", "nobody", "a b@x.org", "a@", "@x.org", "a@x.org>x", "a@x,b"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(Usage):
        compose(to=[address])


def test_several_addresses_with_names_in_one_value() -> None:
    letter = compose(to=['Jürgen Ö <j@x.org>, "Doe, Jane" <jane@x.org>'], cc=["c@x.org"], bcc=["h@x.org", "c@x.org"])
    assert letter.rcpt == ("j@x.org", "jane@x.org", "c@x.org", "h@x.org")
    read = message_from_bytes(letter.data, policy=policy.default)
    assert [a.display_name for a in read["to"].addresses] == ["Jürgen Ö", "Doe, Jane"]
    assert b"h@x.org" not in letter.data and "bcc" not in read


def test_bad_case_30_unicode_and_long_headers_are_ascii_on_the_wire_and_come_back() -> None:
    subject = "Grüße, 世界 🎉 " + "sehr lang " * 40 + "Ende"
    letter = compose(subject=subject, text="Zeile mit ß\n.\n..zwei\nFrom here\n", html="<p>ß</p>")
    assert letter.data.isascii() and letter.subject == subject
    assert all(len(line) <= 998 for line in letter.data.split(b"\r\n"))
    assert letter.data.count(b"\n") == letter.data.count(b"\r\n") and b"\r\r" not in letter.data
    text, html = (part[2].decode() for part in mime.parts(letter.data))
    assert text.replace("\r\n", "\n") == "Zeile mit ß\n.\n..zwei\nFrom here\n" and html.strip() == "<p>ß</p>"


@pytest.mark.parametrize("name", ["a.bin", "bild.png", "notiz.txt", "brief.eml", "ünï.pdf", "noext", "x.html"])
def test_attachments_are_byte_identical(name: str) -> None:
    letter = compose(attachments=[Attachment(name, EVERY_BYTE), Attachment("e", b"")])
    found = [(found, content) for _, found, content in mime.parts(letter.data)][1:]
    assert found == [(name, EVERY_BYTE), ("e", b"")]


def test_attachments_have_their_content_type() -> None:
    letter = compose(attachments=[Attachment("a.png", b"1"), Attachment("b", b"2"), Attachment("c", b"3", "text/csv")])
    types = [type for type, _, _ in mime.parts(letter.data)][1:]
    assert types == ["image/png", "application/octet-stream", "text/csv"]


@pytest.mark.parametrize(
    "field",
    [b"Bcc: h@x.org", b"bcc : h@x.org", b"BCC:\r\n h@x.org", b"Bcc: h@x.org,\r\n\tg@x.org,\r\n i@x.org",
     b"Resent-Bcc: h@x.org"],
)  # fmt: skip
def test_bad_case_30_bcc_is_stripped_also_when_folded(field: bytes) -> None:
    raw = b"From: a@x.org\r\nTo: b@y.org\r\n" + field + b"\r\nSubject: s\r\n\r\nBcc: in the body stays\r\n"
    letter = adopt(raw)
    head, _, body = letter.data.partition(b"\r\n\r\n")
    names = [line.partition(b":")[0].lower() for line in head.splitlines()]  # a Message-ID may hold any letters
    assert not any(b"bcc" in name for name in names)
    assert b"@x.org" in head and head.count(b"\n ") == 0 and b"\n\t" not in head
    assert body == b"Bcc: in the body stays\r\n"
    if not field.startswith(b"Resent"):
        assert "h@x.org" in letter.rcpt


def test_bad_case_30_bare_line_ends_become_crlf() -> None:
    letter = adopt(b"From: a@x.org\nTo: b@y.org\rSubject: s\n\none\n.\ntwo\rthree\r\nend")
    assert letter.data.endswith(b"\r\n\r\none\r\n.\r\ntwo\r\nthree\r\nend\r\n")
    assert letter.data.replace(b"\r\n", b"").find(b"\n") == -1 and b"\r" not in letter.data.replace(b"\r\n", b"")


def test_eight_bit_bodies_stay_as_they_are() -> None:
    body = "ä".encode("latin-1") + b"\xff\x00\x80 8 bit\r\n"
    letter = adopt(b"From: a@x.org\r\nTo: b@y.org\r\nSubject: =?utf-8?q?=C3=A4?=\r\n\r\n" + body)
    assert letter.data.endswith(b"\r\n\r\n" + body) and letter.subject == "ä"


def test_what_is_missing_is_added_and_what_is_there_stays() -> None:
    letter = adopt(b"Subject: s\n\nx\n", sender="a@x.org", rcpt=["b@y.org"])
    for name in ("from", "date", "message-id"):
        assert mime.field(letter.data, name)
    again = adopt(letter.data, rcpt=["b@y.org"])
    assert again.data == letter.data and again.message_id == letter.message_id and again.sender == "a@x.org"


def test_a_message_without_a_head_or_from_a_mailbox_file_is_read() -> None:
    assert adopt(b"just text\n", sender="a@x.org", rcpt=["b@y.org"]).data.endswith(b"\r\n\r\njust text\r\n")
    letter = adopt(b"From a@x.org Mon Jan  1\nFrom: a@x.org\nTo: b@y.org\n\nx\n")
    assert not letter.data.startswith(b"From ") and letter.rcpt == ("b@y.org",)


def test_nobody_to_send_to_is_refused() -> None:
    with pytest.raises(Usage):
        adopt(b"From: a@x.org\n\nx\n")
    with pytest.raises(Usage):
        adopt(b"To: b@y.org\n\nx\n")


def test_the_same_message_written_twice_has_one_fingerprint() -> None:
    files = [Attachment("a.bin", EVERY_BYTE)]
    one, two = compose(attachments=files, html="<p>"), compose(attachments=files, html="<p>", now_s=1.9e9)
    assert one.data != two.data and mime.fingerprint(one) == mime.fingerprint(two)
    for other in (compose(attachments=files, html="<b>"), compose(attachments=files, html="<p>", to=["c@y.org"])):
        assert mime.fingerprint(other) != mime.fingerprint(one)
