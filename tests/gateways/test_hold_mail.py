"""`reprieve run --hold-mail`: what programs send by SMTP or sendmail is held, and nothing leaves."""

from __future__ import annotations

import os
import smtplib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from reprieve.app import mail
from reprieve.app.finding import open_workspace
from reprieve.app.run import run
from reprieve.errors import Refused, Usage
from reprieve.gateways.sendmail import TRY_AGAIN, USAGE, read_mail, read_sendmail
from reprieve.gateways.smtp_hold import HoldServer
from support import Cli
from support.postoffice import Sink


@pytest.fixture
def server(project: Path) -> Iterator[HoldServer]:
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
    with HoldServer(str(project)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def held(project: Path) -> list[dict[str, Any]]:
    """What is held, with its content."""
    with open_workspace(str(project)) as ws, mail.room_of(ws) as room:
        return [
            {**(effect.request or {}), "id": effect.id, "data": room.letter(effect).data} for effect in room.waiting()
        ]


def test_held_means_durable_and_the_answer_names_it(server: HoldServer, project: Path) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@x.org", "b@y.org", "Grüße"
    message.set_content("hello\n.\nbye\n")
    message.add_attachment(bytes(range(256)), maintype="application", subtype="x", filename="a.bin")
    with smtplib.SMTP("127.0.0.1", server.port) as client:
        client.login("canary-user", "canary-pass")
        client.mail("a@x.org")
        client.rcpt("b@y.org")
        client.rcpt("hidden@y.org")
        code, answer = client.data(message.as_bytes())
    (found,) = held(project)
    assert (code, answer.decode()) == (250, f"2.0.0 held as {found['id']}")
    assert found["rcpt"] == ["b@y.org", "hidden@y.org"] and found["subject"] == "Grüße"
    for path in (project.parent / "home").rglob("*"):
        if path.is_file():
            assert b"canary" not in path.read_bytes()


def test_bcc_and_bare_line_ends_do_not_get_through(server: HoldServer, project: Path) -> None:
    with smtplib.SMTP("127.0.0.1", server.port) as client:
        client.ehlo()
        client.mail("a@x.org")
        client.rcpt("b@y.org")
        client.docmd("DATA")
        client.send(b"From: a@x.org\nBcc: h@y.org,\n g@y.org\nSubject: s\n\none\ntwo\r\n.\r\n")
        assert client.getreply()[0] == 250
    (found,) = held(project)
    assert b"Bcc" not in found["data"] and b"g@y.org" not in found["data"] and found["rcpt"] == ["b@y.org"]
    assert b"\r\n\r\none\r\ntwo\r\n" in found["data"]


def test_what_cannot_be_kept_is_451_and_not_held(server: HoldServer, project: Path, home: Path) -> None:
    (home / "mail").mkdir(mode=0o700)
    (home / "mail").rmdir()
    (home / "mail").write_bytes(b"")  # a folder can't be made there
    with smtplib.SMTP("127.0.0.1", server.port) as client, pytest.raises(smtplib.SMTPDataError) as error:
        client.sendmail("a@x.org", ["b@y.org"], "Subject: s\n\nx")
    assert error.value.smtp_code == 451 and held(project) == []


def test_a_client_that_goes_away_in_the_middle_has_held_nothing(server: HoldServer, project: Path) -> None:
    client = smtplib.SMTP("127.0.0.1", server.port)
    client.ehlo()
    client.mail("a@x.org")
    client.rcpt("b@y.org")
    client.docmd("DATA")
    client.send(b"Subject: s\r\n\r\nhalf")
    client.close()
    assert held(project) == []


# -- the stand-ins


def test_bad_case_30_what_sendmail_is_asked_on_its_command_line() -> None:
    asked = read_sendmail(["-t", "-i", "-f", "a@x.org", "-oi", "-oem", "-F", "A Name", "b@y.org"])
    assert (asked.is_from_headers, asked.ends_at_dot, asked.sender, asked.rcpt) == (
        True,
        False,
        "a@x.org",
        ("b@y.org",),
    )
    assert read_sendmail(["-ti"]).is_from_headers and not read_sendmail(["-ti"]).ends_at_dot
    assert read_sendmail(["-fa@x.org", "--", "-odd@y.org"]).rcpt == ("-odd@y.org",)
    assert read_sendmail(["--account=work", "--read-recipients", "-a", "work"]).is_from_headers
    assert read_mail(["-s", "Hi there", "-c", "c@x.org", "-b", "h@x.org", "a@x.org", "b@x.org"]).rcpt == (
        "a@x.org",
        "b@x.org",
    )


@pytest.mark.parametrize("words", [["-bs"], ["-bp"], ["-q"], ["-z"], ["--bogus"], ["-f"], ["-Q"]])
def test_what_sendmail_does_not_understand_is_an_error(words: list[str]) -> None:
    with pytest.raises(Usage):
        read_sendmail(words)


@pytest.mark.parametrize("words", [["-f"], ["-A", "x"], ["-s"], ["--to"], ["-a", "file"]])
def test_what_mail_does_not_understand_is_an_error(words: list[str]) -> None:
    with pytest.raises(Usage):
        read_mail(words)


def shim(project: Path, text: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "reprieve.gateways.sendmail", str(project), *words],
        input=text,
        capture_output=True,
    )


def test_sendmail_without_a_workspace_or_with_nobody_fails_and_says_so(project: Path, home: Path) -> None:
    gone = shim(project, b"Subject: s\n\nx\n", "sendmail", "a@x.org")
    assert gone.returncode == TRY_AGAIN and b"not held, not sent" in gone.stderr
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
    assert shim(project, b"Subject: s\n\nx\n", "sendmail", "-t").returncode == USAGE
    assert held(project) == []


SENDS = """
printf 'From: a@x.org\\nTo: b@y.org\\nBcc: h@y.org,\\n\\tg@y.org\\nSubject: by sendmail\\n\\nhello\\n.\\nmore\\n' |
    sendmail -t -i
printf 'Subject: to a dot\\n\\nhello\\n.\\nmore\\n' | sendmail -f a@x.org c@y.org
printf 'hello\\n' | mail -s 'by mail' -b h@y.org d@y.org
python -c '
import os, smtplib
with smtplib.SMTP(os.environ["SMTP_HOST"], int(os.environ["SMTP_PORT"])) as client:
    client.sendmail("a@x.org", ["e@y.org"], "Subject: by smtp\\n\\nhello")
'
echo written > file.txt
"""


def test_a_run_holds_what_it_sends_and_a_rollback_cancels_it(cli: Cli, project: Path, tmp_path: Path) -> None:
    with Sink() as sink:
        (tmp_path / "config.toml").write_text(sink.settings())
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        cli("checkpoint", "base")
        result = cli("run", "--hold-mail", "--label", "agent", "--json", "--", "sh", "-ec", SENDS, env={"PATH": path})
        assert result.json["held_mail"] == 4 and result.err.count("; nothing was sent") == 3
        found = {each["subject"]: each for each in held(project)}
        assert found["by sendmail"]["rcpt"] == ["b@y.org", "h@y.org", "g@y.org"]
        assert b"Bcc" not in found["by sendmail"]["data"] and b"g@y.org" not in found["by sendmail"]["data"]
        assert found["by sendmail"]["data"].endswith(b"\r\n\r\nhello\r\n.\r\nmore\r\n")
        assert found["to a dot"]["data"].endswith(b"\r\n\r\nhello\r\n") and found["to a dot"]["rcpt"] == ["c@y.org"]
        assert found["by mail"]["rcpt"] == ["d@y.org", "h@y.org"] and found["by smtp"]["rcpt"] == ["e@y.org"]
        assert {effect["actor"] for effect in cli("effects", "--json").json["effects"]} == {"run:agent"}
        released = found["by smtp"]["id"]
        cli("mail", "release", released, "--yes")
        report = cli("rollback", "base", "--yes", "--json", check=False)
        assert report.code == 6 and not (project / "file.txt").exists()
        states = sorted(effect["state"] for effect in report.json["report"]["effects"])
        assert states == ["canceled", "canceled", "canceled", "irreversible"] and len(sink.arrived) == 1


def test_nothing_of_a_run_that_held_mail_is_left_running(cli: Cli, project: Path) -> None:
    cli("run", "--hold-mail", "--", "sh", "-c", 'echo "$SMTP_PORT" > port')
    with pytest.raises(ConnectionRefusedError):
        smtplib.SMTP("127.0.0.1", int((project / "port").read_text()))


@pytest.mark.parametrize("how", ["", 'env -i PATH="$PATH" REPRIEVE_HOME="$REPRIEVE_HOME"'])
def test_what_a_run_left_behind_does_not_reach_the_real_sendmail(
    cli: Cli, project: Path, tmp_path: Path, how: str
) -> None:
    """A child that sends when the run is over, also one that dropped what marks it as the run's: it is held."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "sendmail").write_text(f"#!/bin/sh\ncat > {tmp_path}/sent\n")
    (real / "sendmail").chmod(0o755)
    os.mkfifo(tmp_path / "over")
    late = f"""read line < {tmp_path}/over
        printf 'From: a@x.org\\nSubject: late\\n\\nx\\n' | sendmail b@y.org; echo $? > {tmp_path}/code.new
        mv {tmp_path}/code.new {tmp_path}/code"""
    (tmp_path / "late.sh").write_text(late)
    script = f"{how} sh {tmp_path}/late.sh >/dev/null 2>&1 </dev/null &"
    cli("run", "--hold-mail", "--", "sh", "-c", script, env={"PATH": f"{real}{os.pathsep}{os.environ['PATH']}"})
    cli("run", "--hold-mail", "--", "true")  # another one puts them anew
    (tmp_path / "over").write_text("now\n")
    while not (tmp_path / "code").exists():
        time.sleep(0.02)
    assert not (tmp_path / "sent").exists()
    assert (tmp_path / "code").read_text() == "0\n"
    assert [each["subject"] for each in held(project)] == ["late"]


def test_what_somebody_put_beside_the_stand_ins_is_not_found_by_a_later_run(cli: Cli, project: Path) -> None:
    cli(
        "run",
        "--hold-mail",
        "--",
        "sh",
        "-c",
        'printf "#!/bin/sh\ntouch planted\n" > "${PATH%%:*}/date"; chmod +x "${PATH%%:*}/date"',
    )
    cli("run", "--hold-mail", "--", "date")
    assert not (project / "planted").exists()


def test_a_store_that_path_cannot_name_is_refused_before_anything_runs(cli: Cli, project: Path, tmp_path: Path) -> None:
    """The shell would pass by the stand-ins, and find the real ones."""
    refused = cli("run", "--hold-mail", "--", "touch", "ran", env={"REPRIEVE_HOME": str(tmp_path / "a:b")}, check=False)
    assert refused.code == 5 and "nothing was run" in refused.err and not (project / "ran").exists()


def test_a_run_that_is_refused_because_mail_cannot_be_held_leaves_no_window(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person does afterwards is theirs, not that run's."""
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONHOME", "/nonexistent")  # so that the server's Python does not start
            with pytest.raises(Refused, match="did not start"):
                run(ws, ["touch", "ran"], label="agent", hold_mail=True)
        assert not (project / "ran").exists()
        assert ws.capture.author()[1].open == ()
        (project / "mine").touch()
        assert not ws.capture.author()[0].startswith("run:")


def test_bad_case_55_a_budget_of_messages_and_recipients_holds_for_a_run(cli: Cli) -> None:
    """The third message, and the message with too many recipients, are refused; the program is told."""
    cli("config", "set", "budget.messages", "2")
    cli("config", "set", "budget.recipients", "4")
    send = "printf 'Subject: x\\n\\nx\\n' | sendmail -i {} && echo held || echo refused"
    script = "; ".join(
        send.format(to) for to in ("a@example.org", "a@x.org b@x.org c@x.org d@x.org", "b@x.org", "c@x.org")
    )
    out = cli("run", "--hold-mail", "--", "sh", "-c", script).out
    assert [line for line in out.splitlines() if line in ("held", "refused")] == ["held", "refused", "held", "refused"]
    assert len(cli("mail", "pending", "--json").json["effects"]) == 2
