"""Messages as bytes: build them, make foreign ones safe to send, and read what people must see of them.

Building is the standard library's; header values with line ends or other control characters are refused before it sees
them. Whatever comes in leaves with CRLF line ends, no Bcc field, and a Date, a From and a Message-ID.
"""

from __future__ import annotations

import os

from reprieve.errors import Usage
from reprieve.model.value import Value
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from email.message import Message

_HIDDEN = (b"bcc", b"resent-bcc")  # who reads the message must not see who else got it
_RECEIVERS = ("to", "cc", "bcc")
_LINE_ENDS = frozenset("\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")


class Attachment(Value):
    """A file that goes along."""

    name: str
    data: bytes
    type: str = ""  # "image/png"; "": by its name


class Letter(Value):
    """A message with its envelope. `data` is exactly what is sent."""

    sender: str
    rcpt: tuple[str, ...]  # everybody who gets it, those in Bcc as well
    data: bytes
    subject: str = ""
    message_id: str = ""


def compose(
    *,
    sender: str,
    to: Sequence[str] = (),
    cc: Sequence[str] = (),
    bcc: Sequence[str] = (),
    subject: str = "",
    text: str | None = None,
    html: str | None = None,
    attachments: Sequence[Attachment] = (),
    now_s: float,
) -> Letter:
    """A new message. Raises Usage for values that can't be in one."""
    from email.message import EmailMessage
    from email.policy import SMTP, SMTPUTF8

    receivers = [address for values in (to, cc, bcc) for address in addresses(*values)]
    senders = addresses(sender)
    if len(senders) != 1:
        raise Usage(f"'{sender}' is not one sender", hints=["--from you@example.org"])
    # 7 bit: every server takes it as it is, so the bytes that arrive are the bytes that were held
    policy = SMTP if all(address.isascii() for address in (*senders, *receivers)) else SMTPUTF8
    message = EmailMessage(policy=policy.clone(cte_type="7bit"))
    for name, values in (("From", (sender,)), ("To", to), ("Cc", cc)):
        if values:
            message[name] = ", ".join(values)
    message["Subject"] = _one_line("subject", subject)
    message["Date"] = _date(now_s)
    message["Message-ID"] = _new_message_id(senders[0])
    try:
        if text is not None or html is None:
            message.set_content(text or "")
            if html is not None:
                message.add_alternative(html, subtype="html")
        else:
            message.set_content(html, subtype="html")
    except UnicodeEncodeError as e:
        raise Usage(f"the body is not text that can be written: {e.reason}") from e
    for attachment in attachments:
        main, _, sub = _type_of(attachment).partition("/")
        name = _one_line("attachment's name", attachment.name)
        message.add_attachment(attachment.data, maintype=main, subtype=sub, filename=name)
    return _letter(message.as_bytes(), senders[0], receivers)


def adopt(raw: bytes, *, sender: str = "", rcpt: Sequence[str] | None = None, now_s: float) -> Letter:
    """A message that a program wrote. Without `rcpt` it goes to those in its To, Cc and Bcc."""
    data = with_crlf(raw)
    fields, body = _split(data)
    named = dict(reversed([(name, text) for name, text, _ in fields]))  # of several the first
    receivers = list(rcpt) if rcpt is not None else receivers_of(data)
    if not sender:
        found = addresses(named.get("sender") or named.get("from") or "", is_strict=False)
        if not found:
            raise Usage("the message has no sender", hints=["name one: --from you@example.org"])
        sender = found[0]
    head = b"".join(lines for name, _, lines in fields if name.encode() not in _HIDDEN)
    if "from" not in named:
        head += b"From: " + _ascii(sender) + b"\r\n"
    if "date" not in named:
        head += b"Date: " + _date(now_s).encode() + b"\r\n"
    if not named.get("message-id", "").strip():
        head += b"Message-ID: " + _new_message_id(sender).encode() + b"\r\n"
    return _letter(head + b"\r\n" + body, sender, receivers)


def with_crlf(raw: bytes) -> bytes:
    """Every line end as CRLF: bare ones let a message mean different things to different servers."""
    data = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    return data if not data or data.endswith(b"\r\n") else data + b"\r\n"


def with_fields(data: bytes, fields: Sequence[tuple[str, str]]) -> bytes:
    """The message with more fields in front, for a copy that only its owner sees."""
    for name, value in fields:
        _one_line(name, value)
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in fields) + data


def addresses(*values: str, is_strict: bool = True) -> list[str]:
    """The bare addresses of values such as "Jane <jane@example.org>, joe@example.org". Raises Usage if strict."""
    from email.utils import getaddresses

    found: list[str] = []
    for value in values:
        if is_strict:
            _one_line("address", value)
        for _, address in getaddresses([value]):
            if is_address(address):
                if address not in found:
                    found.append(address)
            elif is_strict:
                raise Usage(f"'{value}' is no mail address")
    return found


def is_address(text: str) -> bool:
    """Whether it can be put between < and > of an envelope."""
    local, at, domain = text.rpartition("@")
    if not (at and local and domain) or len(text) > 320:
        return False
    return not any(char in '<>"(),:;\\[]' or ord(char) < 33 or ord(char) == 127 or char.isspace() for char in text)


def receivers_of(data: bytes) -> list[str]:
    """Who is named in To, Cc and Bcc."""
    fields, _ = _split(with_crlf(data))
    return addresses(*(text for name, text, _ in fields if name in _RECEIVERS), is_strict=False)


def field(data: bytes, name: str) -> str:
    """The first field of that name, unfolded and decoded, "" if there is none."""
    fields, _ = _split(data)
    return next((_decoded(text) for found, text, _ in fields if found == name), "")


def fingerprint(letter: Letter) -> str:
    """The same for the same message to the same people, whenever it was written."""
    total = sha256("\0".join(sorted(letter.rcpt)).encode(errors="surrogateescape"))
    total = sha256(total + letter.subject.encode(errors="surrogateescape"))
    for part in _leaves(letter.data):
        facts = f"{part.get_content_type()}\0{part.get_filename() or ''}\0".encode(errors="surrogateescape")
        total = sha256(total + facts + _payload(part).replace(b"\r\n", b"\n").strip())
    return total.hex()


def parts(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(content type, file name, content) of everything in it, for people who look before they release."""
    for part in _leaves(data):
        yield part.get_content_type(), part.get_filename() or "", _payload(part)


# -- inside


def _leaves(data: bytes) -> list[Message]:
    from email import message_from_bytes

    return [part for part in message_from_bytes(data).walk() if not part.is_multipart()]


def _payload(part: Message) -> bytes:
    found = part.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""


def _letter(data: bytes, sender: str, receivers: Sequence[str]) -> Letter:
    rcpt = tuple(dict.fromkeys(receivers))
    if not rcpt:
        raise Usage("the message has no recipient", hints=["name one: --to jane@example.org"])
    for address in (*rcpt, *((sender,) if sender else ())):
        if not is_address(address):
            raise Usage(f"'{address}' is no mail address")
    return Letter(sender, rcpt, data, field(data, "subject"), field(data, "message-id"))


def _split(data: bytes) -> tuple[list[tuple[str, str, bytes]], bytes]:
    """Fields as (lower-case name, unfolded text, the lines as they are), and the body."""
    fields: list[tuple[str, list[bytes]]] = []
    rest = data
    while rest:
        line, end, after = rest.partition(b"\r\n")
        if not line:
            rest = after
            break
        name, colon, _ = line.partition(b":")
        if line[:1] in b" \t" and fields:
            fields[-1][1].append(line + end)
        elif colon and name.rstrip() and all(32 < byte < 127 for byte in name.rstrip()):
            fields.append((name.rstrip().decode().lower(), [line + end]))
        elif not (line.startswith(b"From ") and not fields):  # the separator of a mailbox file is no field
            break  # no blank line before the body
        rest = after
    return [(name, _unfolded(lines), b"".join(lines)) for name, lines in fields], rest


def _unfolded(lines: Sequence[bytes]) -> str:
    text = b"".join(line.rstrip(b"\r\n") for line in lines).partition(b":")[2]
    return text.decode("utf-8", "surrogateescape").strip()


def _decoded(text: str) -> str:
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        return text


def _one_line(what: str, value: str) -> str:
    for char in value:
        if char in _LINE_ENDS or (ord(char) < 32 and char != "\t") or ord(char) == 127:
            raise Usage(f"the {what} has a line end or a control character in it ({char!r}): {value!r}")
        if 0xD800 <= ord(char) < 0xE000:
            raise Usage(f"the {what} is not valid text: {value!r}")
    return value


def _type_of(attachment: Attachment) -> str:
    import mimetypes

    guessed = attachment.type or mimetypes.guess_type(attachment.name, strict=False)[0] or ""
    main, slash, sub = guessed.partition("/")
    # what holds messages must not be encoded (RFC 2046), and then its bytes would not arrive as they are
    if not slash or main in ("message", "multipart") or not (main + sub).isascii() or _has_space(guessed):
        return "application/octet-stream"
    return guessed


def _has_space(text: str) -> bool:
    return any(char.isspace() or char in ';"' for char in text)


def _date(now_s: float) -> str:
    from email.utils import formatdate

    return formatdate(now_s, localtime=True)


def _new_message_id(sender: str) -> str:
    domain = sender.rpartition("@")[2]
    return f"<{os.urandom(16).hex()}@{domain if domain.isascii() else 'localhost'}>"


def _ascii(text: str) -> bytes:
    return text.encode("utf-8")
