"""The server's side of SMTP: a message ends where it ends, and nothing that is not durable is called held."""

from __future__ import annotations

import pytest

from reprieve.gateways.smtp_talk import Received, Talk

BEGIN = b"EHLO me\r\nMAIL FROM:<a@x.org> BODY=8BITMIME\r\nRCPT TO:<b@y.org>\r\nRCPT TO:<c@y.org>\r\nDATA\r\n"


def converse(*chunks: bytes, problem: str = "", largest: int = 1000) -> tuple[list[Received], list[bytes]]:
    """Everything that was received, and the code of every answer."""
    talk, received, answers = Talk(largest=largest), [], []
    for chunk in chunks:
        for step in talk.feed(chunk):
            if isinstance(step, Received):
                received.append(step)
                step = talk.answered("id1", problem)
            answers.append(step)
    return received, answers


def codes(answers: list[bytes]) -> list[int]:
    return [int(answer[:3]) for answer in answers]


def test_a_message_with_its_envelope() -> None:
    received, answers = converse(BEGIN, b"Subject: s\r\n\r\n..dot\r\n.\r\n", b"QUIT\r\n")
    assert received == [Received("a@x.org", ("b@y.org", "c@y.org"), b"Subject: s\r\n\r\n.dot\r\n")]
    assert codes(answers) == [250, 250, 250, 250, 354, 250, 221] and answers[5] == b"250 2.0.0 held as id1\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_it_does_not_matter_how_the_bytes_arrive(size: int) -> None:
    whole = BEGIN + b"Subject: s\r\n\r\nx\r\n.\r\n" + BEGIN + b".\r\n" + b"QUIT\r\n"
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert converse(*chunks) == converse(whole)
    assert [message.data for message in converse(whole)[0]] == [b"Subject: s\r\n\r\nx\r\n", b""]


@pytest.mark.parametrize("end", [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r", b"\n.\r"])
def test_no_message_is_smuggled_in_another(end: bytes) -> None:
    evil = b"x" + end + b"MAIL FROM:<evil@x.org>\r\nRCPT TO:<victim@y.org>\r\nDATA\r\nevil\r\n"
    received, _ = converse(BEGIN, evil + b".\r\n")
    assert [message.sender for message in received] == ["a@x.org"]


def test_what_could_not_be_held_is_451() -> None:
    _, answers = converse(BEGIN, b"x\r\n.\r\n", problem="the disk is\r\n250 full")
    assert answers[-1] == b"451 4.3.0 not held, not sent: the disk is 250 full\r\n"


def test_too_large_is_refused_before_and_after_and_the_next_one_is_read() -> None:
    assert codes(converse(b"MAIL FROM:<a@x.org> SIZE=1001\r\n")[1]) == [552]
    large = b"y" * 400 + b"\r\n"
    received, answers = converse(BEGIN, *[large] * 6, b".\r\n", BEGIN, b"ok\r\n.\r\n")
    assert codes(answers)[5] == 552 and [message.data for message in received] == [b"ok\r\n"]


def test_an_end_inside_of_what_is_too_large_is_no_smuggling() -> None:
    """What is forgotten of a message that is too large does not make the rest of it a message of its own."""
    rest = b"a\r\n.x\r\nMAIL FROM:<evil@x.org>\r\nRCPT TO:<v@y.org>\r\nDATA\r\nevil\r\n"
    for cut in range(1, 8):
        received, answers = converse(BEGIN, b"y" * 1100, rest[:cut], rest[cut:], b".\r\n", b"NOOP\r\n")
        assert received == [] and codes(answers)[5:] == [552, 250]


@pytest.mark.parametrize(
    "lines",
    [b"AUTH PLAIN AGNhbmFyeQBjYW5hcnk=\r\n", b"AUTH PLAIN\r\nAGNhbmFyeQBjYW5hcnk=\r\n",
     b"AUTH LOGIN\r\nY2FuYXJ5\r\nY2FuYXJ5\r\n", b"AUTH LOGIN Y2FuYXJ5\r\nY2FuYXJ5\r\n"],
)  # fmt: skip
def test_a_login_is_accepted_and_forgotten(lines: bytes) -> None:
    talk = Talk()
    answers = list(talk.feed(b"EHLO me\r\n" + lines))
    assert answers[-1] == b"235 2.7.0 welcome\r\n"
    assert b"Y2FuYXJ5" not in repr(vars(talk)).encode() and b"canary" not in repr(vars(talk)).encode()


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"RCPT TO:<a@x.org>", 503), (b"DATA", 503), (b"MAIL FROM:a@x.org", 501), (b"MAIL TO:<a@x.org>", 501),
     (b"MAIL FROM:<a b@x.org>", 501), (b"MAIL FROM:<a@x.org> HOLDFOR=5", 555), (b"STARTTLS", 502), (b"XYZ", 502),
     (b"NOOP", 250), (b"RSET", 250), (b"VRFY a", 252), (b"MAIL FROM:<>", 250), (b"", 502), (b"\xff\xfe", 502),
     (b"AUTH CRAM-MD5", 504), (b"HELO me", 250), (b"MAIL FROM:", 501)],
)  # fmt: skip
def test_what_is_out_of_order_or_unknown_is_an_error(line: bytes, code: int) -> None:
    assert codes(converse(line + b"\r\n")[1]) == [code]


def test_a_line_without_end_is_the_end() -> None:
    talk = Talk()
    (answer,) = talk.feed(b"x" * 5000)
    assert isinstance(answer, bytes) and answer.startswith(b"500") and talk.is_over
