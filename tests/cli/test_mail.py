"""`reprieve mail`: nothing leaves before a person's yes, and what left is said to be gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Cli, Result
from support.forkserver import ForkServer
from support.mailbox import Mailbox
from support.postoffice import Sink
from support.terminal import at_terminal

MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT")


@pytest.fixture(autouse=True)
def a_persons_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in MARKS:
        monkeypatch.delenv(mark, raising=False)


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    server = ForkServer(preload=False)
    yield server
    server.close()


@pytest.fixture
def cli(cli: Cli, forks: ForkServer, project: Path) -> Cli:
    """The same in forks of one process that has everything loaded, where no input is asked for."""

    def run(*args: str, check: bool = True, cwd: Path | None = None, **more: Any) -> Result:
        if more.get("input") is not None:
            return cli(*args, check=check, cwd=cwd, **more)
        environ = {**os.environ, **dict.fromkeys(MARKS, ""), "REPRIEVE_RUN": "", **(more.get("env") or {})}
        done = forks.run(args, cwd=cwd or project, env={name: value or "" for name, value in environ.items()})
        assert not check or done.code == 0, done
        return Result(done.code, done.out, done.err)

    return run


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    with Sink() as sink:
        (tmp_path / "config.toml").write_text(sink.settings())
        yield sink


def stage(cli: Cli, to: str = "jane@example.org", *more: str, subject: str = "Offer", **options: Any) -> str:
    answer = cli(
        "mail", "stage", "--to", to, "--subject", subject, "--body", "Dear\n.\nbye\n", *more, "--json", **options
    )
    assert answer.json["effect"]["state"] == "held"
    id: str = answer.json["effect"]["id"]
    return id


def state(cli: Cli, id: str) -> str:
    return next(e["state"] for e in cli("effects", "--json").json["effects"] if e["id"] == id)


def test_a_held_message_is_nowhere_but_in_the_spool(cli: Cli, sink: Sink, home: Path) -> None:
    id = stage(cli, "jane@example.org", "--cc", "joe@example.org", "--bcc", "boss@example.org")
    assert sink.heard == []
    spool = home / "mail" / f"{id}.eml"
    assert spool.stat().st_mode & 0o777 == 0o600 and spool.parent.stat().st_mode & 0o777 == 0o700
    effect = cli("mail", "pending", "--json").json["effects"][0]
    assert (effect["id"], effect["kind"], effect["class"], effect["state"]) == (id, "mail", "holdable", "held")
    assert effect["mail"]["rcpt"] == ["jane@example.org", "joe@example.org", "boss@example.org"]
    assert effect["mail"]["size"] == spool.stat().st_size and effect["inverse"] is None
    assert b"boss" not in spool.read_bytes()
    shown = cli("mail", "pending", id).out
    assert "boss@example.org" in shown and "  Dear" in shown


def test_released_it_arrives_once_as_it_was_staged(cli: Cli, sink: Sink, home: Path) -> None:
    id = stage(cli, "jane@example.org", "--bcc", "boss@example.org")
    spooled = (home / "mail" / f"{id}.eml").read_bytes()
    result = cli("mail", "release", id, "--yes", "--json").json
    assert result["sent"] == 1 and result["effects"][0]["state"] == "done"
    assert result["effects"][0]["reply"]["accepted"] == ["jane@example.org", "boss@example.org"]
    (arrived,) = sink.arrived
    assert arrived.data == spooled and arrived.rcpt == ["jane@example.org", "boss@example.org"]
    assert arrived.sender == "agent@example.org" and b"\r\nDear\r\n.\r\nbye\r\n" in arrived.data
    for words in (("release", id, "--yes"), ("cancel", id)):
        again = cli("mail", *words, check=False)
        assert again.code == 5 and "was sent already and is gone" in again.err
    assert len(sink.arrived) == 1


def test_after_delivery_it_says_plainly_that_it_is_gone(cli: Cli, sink: Sink) -> None:
    cli("checkpoint", "base")
    id = stage(cli)
    cli("mail", "release", id, "--yes")
    assert "sent and gone" in cli("effects").out
    assert "it was delivered and is gone" in cli("rollback", "base", "--dry-run").out
    result = cli("rollback", "base", "--yes", "--json", check=False)
    assert result.code == 6 and result.json["report"]["effects"][0]["state"] == "irreversible"
    assert len(sink.arrived) == 1


def test_a_rollback_cancels_what_is_held(cli: Cli, sink: Sink) -> None:
    cli("checkpoint", "base")
    id = stage(cli)
    assert cli("rollback", "base", "--yes").code == 0
    assert state(cli, id) == "canceled" and cli("mail", "pending", "--json").json["effects"] == []
    refused = cli("mail", "release", id, "--yes", check=False)
    assert refused.code == 5 and "never left" in refused.err and sink.arrived == []


@pytest.mark.parametrize("earlier", [False, True])
def test_a_rollback_leaves_the_mail_that_a_person_staged(cli: Cli, project: Path, sink: Sink, earlier: bool) -> None:
    """Outside of every agent's step it is theirs, like a file; also before the first agent was ever at work."""
    if earlier:
        cli("run", "--", "true")
    cli("checkpoint", "base")
    mine = stage(cli)
    by_agent = f"{sys.executable} -m reprieve mail stage --from a@x.org --to b@y.org --subject theirs --body x"
    cli("run", "--", "sh", "-c", f"echo agent > README.md; {by_agent}")
    shown = cli("rollback", "base", "--dry-run").out
    assert f"= kept      {mine}" in shown and shown.count("~ cancel ") == 1
    result = cli("rollback", "base", "--yes", "--json").json
    states = {effect["id"]: effect["state"] for effect in result["report"]["effects"]}
    assert states.pop(mine) == "kept" and list(states.values()) == ["canceled"]
    assert [effect["id"] for effect in cli("mail", "pending", "--json").json["effects"]] == [mine]
    assert "0 effects undone, 0 not, 1 kept" in cli("rollback", "base").out  # nothing to agree to, nothing failed
    assert mine in cli("compensate", "base", "--execute", "--yes").out
    assert cli("rollback", "base", "--yes", "--everything").code == 0
    assert cli("mail", "pending", "--json").json["effects"] == []


def test_what_a_run_left_behind_stages_is_no_persons(cli: Cli, sink: Sink) -> None:
    cli("checkpoint", "base")
    cli("run", "--", "true")
    late = stage(cli, env={"REPRIEVE_RUN": "1"})
    (outcome,) = cli("rollback", "base", "--yes", "--json").json["report"]["effects"]
    assert (outcome["id"], outcome["state"]) == (late, "canceled")


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_rollback_takes_the_draft_along_or_says_that_it_may_be_gone(
    cli: Cli, sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "right")
    with Mailbox() as mailbox:
        settings = {"imap_host": "127.0.0.1", "imap_port": mailbox.port, "imap_security": "none", "imap_user": "me"}
        (tmp_path / "config.toml").write_text(sink.settings(**settings, imap_password="env:MAIL_PASSWORD"))
        cli("checkpoint", "base")
        id = stage(cli, "jane@example.org", "--backend", "imap")
        assert len(mailbox.drafts) == 1
        if is_gone:
            mailbox.drafts.clear()  # its owner sent it, or threw it away
        result = cli("rollback", "base", "--yes", "--json", check=False)
        assert result.code == (6 if is_gone else 0) and mailbox.drafts == {}
        (effect,) = result.json["report"]["effects"]
        assert effect["state"] == ("manual" if is_gone else "canceled")
        assert state(cli, id) == ("unknown" if is_gone else "canceled") and sink.arrived == []


def test_wb_26_two_of_three_sent_is_reported_exactly_so(cli: Cli, sink: Sink) -> None:
    sink.refuse["b@example.org"] = "550 no such user"
    ids = [stage(cli, f"{who}@example.org", subject=who) for who in "abc"]
    result = cli("mail", "release", *ids, "--yes", "--json", check=False)
    assert result.code == 6 and result.json["sent"] == 2
    assert [e["state"] for e in result.json["effects"]] == ["done", "held", "done"]
    assert "550 no such user" in result.json["effects"][1]["problem"]
    assert [a.rcpt for a in sink.arrived] == [["a@example.org"], ["c@example.org"]]
    result = cli("mail", "cancel", *ids, "--json", check=False)
    assert result.code == 5 and "was sent already" in result.json["error"]["message"]
    assert [e["id"] for e in cli("mail", "pending", "--json").json["effects"]] == [ids[1]]
    sink.refuse.clear()
    cli("mail", "release", ids[1], "--yes")
    assert [a.rcpt[0][0] for a in sink.arrived] == ["a", "c", "b"]


def test_bad_case_30_one_recipient_refused_is_partly_sent_and_named(cli: Cli, sink: Sink) -> None:
    sink.refuse["bad@example.org"] = "550 no such user"
    id = stage(cli, "good@example.org", "--cc", "bad@example.org")
    result = cli("mail", "release", id, "--yes", "--json", check=False)
    assert result.code == 6
    (effect,) = result.json["effects"]
    assert effect["state"] == "done" and effect["reply"]["accepted"] == ["good@example.org"]
    assert effect["reply"]["refused"] == {"bad@example.org": "550 no such user"}
    assert "sent to 1 of 2" in effect["problem"]


@pytest.mark.parametrize("answer", ["451 later", "554 no"])
def test_a_server_that_refuses_the_message_leaves_it_held(cli: Cli, sink: Sink, answer: str) -> None:
    sink.answer_to_data = answer
    id = stage(cli)
    result = cli("mail", "release", id, "--yes", check=False)
    assert result.code == 6 and "NOT SENT, still held" in result.out and answer in result.out
    sink.answer_to_data = "250 ok"
    cli("mail", "release", id, "--yes")
    assert len(sink.arrived) == 1


def test_a_server_that_is_down_leaves_it_held(cli: Cli, sink: Sink, tmp_path: Path) -> None:
    id = stage(cli)
    (tmp_path / "config.toml").write_text(sink.settings(smtp_port=1))
    result = cli("mail", "release", id, "--yes", "--json", check=False)
    assert result.code == 6 and result.json["effects"][0]["state"] == "held" and result.json["sent"] == 0


def test_e09_no_answer_after_the_message_is_unknown_and_never_sent_again(cli: Cli, sink: Sink, home: Path) -> None:
    cli("checkpoint", "base")
    sink.answer_to_data = ""  # it has the message, and hangs up
    id = stage(cli, "jane@example.org", "--bcc", "boss@example.org")
    result = cli("mail", "release", id, "--yes", check=False)
    assert result.code == 6 and "MAY HAVE BEEN SENT" in result.out
    sink.answer_to_data = "250 ok"
    for words in (("release", id, "--yes"), ("cancel", id)):
        again = cli("mail", *words, "--json", check=False)
        assert again.code == 5 and again.json["error"]["state"] == "unknown"
    hints = cli("mail", "release", id, "--yes", "--json", check=False).json["error"]["hints"]
    assert any(f"reprieve keep {id}" in hint for hint in hints)
    assert "MAY HAVE BEEN SENT" in cli("mail", "pending").out
    assert "may have been delivered" in cli("rollback", "base", "--dry-run").out
    assert len(sink.arrived) == 1
    # the way that the hint names: accept it, stage the same message anew
    cli("keep", id)
    assert cli("mail", "pending", "--json").json["effects"] == []
    command = next(hint for hint in hints if "--eml" in hint).partition("then reprieve ")[2].split()
    new = cli(*command, "--json").json["effect"]
    assert new["mail"]["rcpt"] == ["jane@example.org", "boss@example.org"]
    assert (home / "mail" / f"{new['id']}.eml").read_bytes() == sink.arrived[0].data


@pytest.mark.parametrize("what", ["content", "recipient", "missing", "link"])
def test_bad_case_53_a_spool_that_was_changed_is_not_sent(
    cli: Cli, sink: Sink, home: Path, tmp_path: Path, what: str
) -> None:
    id, other = stage(cli), stage(cli, subject="other")
    spool = home / "mail" / f"{id}.eml"
    data = spool.read_bytes()
    if what == "content":
        spool.write_bytes(data + b"PS: pay 1000\r\n")
    elif what == "recipient":
        spool.write_bytes(data.replace(b"jane@", b"evil@"))
    else:
        spool.unlink()
        if what == "link":
            (tmp_path / "elsewhere").write_bytes(data)
            spool.symlink_to(tmp_path / "elsewhere")
    result = cli("mail", "release", other, id, "--yes", check=False)
    assert result.code == 5 and id in result.err and "not sent" in result.err
    checked = cli("verify", "--json", check=False)
    assert checked.code == 13 and id in checked.out and other not in checked.out
    assert sink.heard == []  # the whole set is proven first
    cli("mail", "cancel", id)
    cli("verify")
    cli("mail", "release", other, "--yes")
    assert len(sink.arrived) == 1


def test_wb_44_a_subject_cannot_add_a_header(cli: Cli, sink: Sink) -> None:
    words = ("mail", "stage", "--to", "a@x.org", "--subject", "hi\r\nBcc: evil@x.org", "--body", "x")
    assert cli(*words, check=False).code == 2
    assert cli("mail", "pending", check=False).out in ("", "No mail waits\n")


def test_attachments_and_html_arrive(cli: Cli, sink: Sink, project: Path) -> None:
    from reprieve.effects import mime

    (project / "page.html").write_text("<p>ü</p>")
    id = stage(cli, "jane@example.org", "--attach", "data.bin", "--attach", "README.md", "--html-file", "page.html")
    cli("mail", "release", id, "--yes")
    parts = list(mime.parts(sink.arrived[0].data))
    assert [part[1] for part in parts] == ["", "", "data.bin", "README.md"]
    assert parts[2][2] == (project / "data.bin").read_bytes() and parts[3][2] == (project / "README.md").read_bytes()


def test_a_whole_message_from_a_file_or_standard_input(cli: Cli, sink: Sink, project: Path) -> None:
    raw = "From: me@x.org\nTo: a@x.org\nBcc: b@x.org,\n  c@x.org\nSubject: hi\n\nhello\n.\n"
    (project / "m.eml").write_text(raw)
    for words, input in ((("--eml", "m.eml"), None), (("--eml", "-", "--to", "d@x.org"), raw.replace("hello", "hey"))):
        answer = cli("mail", "stage", *words, "--json", input=input)
        cli("mail", "release", answer.json["effect"]["id"], "--yes")
    first, second = sink.arrived
    assert first.rcpt == ["a@x.org", "b@x.org", "c@x.org"] and second.rcpt == [*first.rcpt, "d@x.org"]
    assert b"bcc" not in first.data.lower() and first.data.endswith(b"\r\n\r\nhello\r\n.\r\n")
    assert first.sender == "me@x.org"


# -- whose yes it is


def test_without_a_yes_nothing_is_sent(cli: Cli, sink: Sink) -> None:
    id = stage(cli)
    result = cli("mail", "release", id, "--json", input="y\n", check=False)
    assert result.code == 5 and result.json["error"]["approval"] and sink.heard == []


def test_in_autopilot_a_flag_is_no_person(cli: Cli, sink: Sink, tmp_path: Path, project: Path) -> None:
    (tmp_path / "config.toml").write_text(sink.settings() + '[policy]\nmode = "autopilot"\n')
    id, other = stage(cli), stage(cli, subject="other")
    result = cli("mail", "release", id, "--yes", "--json", check=False)
    assert result.code == 5 and sink.heard == []
    code, screen = at_terminal("approve", result.json["error"]["approval"], cwd=project, answer="y\n")
    assert code == 0 and "jane@example.org" in screen and "Offer" in screen
    assert cli("mail", "release", id, other, check=False).code == 5  # approved was that one alone
    assert cli("mail", "release", other, check=False).code == 5
    cli("mail", "release", id)
    assert cli("mail", "release", other, "--yes", check=False).code == 5
    assert len(sink.arrived) == 1


def test_an_agents_yes_is_not_a_persons(cli: Cli, sink: Sink, project: Path) -> None:
    id = stage(cli)
    for mark in ({"CLAUDECODE": "1"}, {"REPRIEVE_RUN": "1"}):
        assert cli("mail", "release", id, "--yes", env=mark, check=False).code == 5
        assert at_terminal("mail", "release", id, cwd=project, answer="y\n", env=mark)[0] == 5
    result = cli("run", "--", "sh", "-c", f"python -m reprieve mail release {id} --yes", check=False)
    assert result.code == 5 and sink.heard == []


def test_at_a_terminal_the_message_is_shown_and_confirmed(cli: Cli, sink: Sink, project: Path) -> None:
    id = stage(cli, "jane@example.org", "--bcc", "boss@example.org")
    code, screen = at_terminal("mail", "release", id, cwd=project, answer="n\n")
    assert code == 5 and "boss@example.org" in screen and "Dear" in screen and sink.heard == []
    code, screen = at_terminal("mail", "release", id, cwd=project, answer="y\n")
    assert code == 0 and "gone" in screen and len(sink.arrived) == 1


def test_an_approval_does_not_hold_for_what_was_exchanged(cli: Cli, sink: Sink, home: Path, project: Path) -> None:
    id = stage(cli)
    approval = cli("mail", "release", id, "--json", check=False).json["error"]["approval"]
    assert at_terminal("approve", approval, cwd=project, answer="y\n")[0] == 0
    (home / "mail" / f"{id}.eml").write_bytes(b"From: a@x.org\r\n\r\nother\r\n")
    assert cli("mail", "release", id, check=False).code == 5 and sink.heard == []


def test_the_tree_cannot_say_where_mail_goes(cli: Cli, sink: Sink, project: Path) -> None:
    id = stage(cli)
    with Sink() as other:
        (project / "reprieve.toml").write_text(other.settings() + '[policy]\nmode = "assist"\n')
        cli("mail", "release", id, "--yes")
        assert other.heard == [] and len(sink.arrived) == 1


# -- the rest


def test_cancel_drops_one_or_all(cli: Cli, sink: Sink) -> None:
    one, two, three = (stage(cli, subject=str(n)) for n in range(3))
    assert cli("mail", "cancel", two, "--json").json["cancelled"] == 1
    assert cli("mail", "cancel", "--all", "--json").json["cancelled"] == 2
    assert {state(cli, id) for id in (one, two, three)} == {"canceled"}
    assert cli("mail", "cancel", "--all").out == "No mail is held\n"
    assert cli("mail", "release", one, "--yes", check=False).code == 5 and sink.heard == []


def test_what_survived_a_rollback_is_not_staged_again_without_a_word(cli: Cli, sink: Sink) -> None:
    cli("checkpoint", "base")
    cli("mail", "release", stage(cli), "--yes")
    cli("rollback", "base", "--yes", check=False)
    again = cli("mail", "stage", "--to", "jane@example.org", "--subject", "Offer", "--body", "Dear\n.\nbye\n",
                "--json", check=False)  # fmt: skip
    assert again.code == 5 and again.json["error"]["code"] == "repeated"
    assert stage(cli, subject="Another offer")


def test_wb_43_a_subfolder_has_no_mail_of_its_own(cli: Cli, sink: Sink, project: Path) -> None:
    cli("checkpoint", "base")
    id = stage(cli, cwd=project / "src")
    assert [e["id"] for e in cli("mail", "pending", "--json").json["effects"]] == [id]
    assert not list(project.rglob("*.eml"))


def test_the_password_is_a_reference_and_is_written_nowhere(cli: Cli, sink: Sink, home: Path, tmp_path: Path) -> None:
    sink.login = ("me", "canary-secret-4711")
    (tmp_path / "config.toml").write_text(sink.settings(smtp_user="me", smtp_password="env:MAIL_PASSWORD"))
    id = stage(cli)
    missing = cli("mail", "release", id, "--yes", check=False, env={"MAIL_PASSWORD": None})
    assert missing.code == 5 and sink.heard == []
    wrong = cli("mail", "release", id, "--yes", "--json", check=False, env={"MAIL_PASSWORD": "canary-wrong-4711"})
    assert wrong.code == 6 and wrong.json["effects"][0]["state"] == "held"
    done = cli("mail", "release", id, "--yes", "--json", env={"MAIL_PASSWORD": "canary-secret-4711"})
    assert len(sink.arrived) == 1
    for text in (wrong.out, wrong.err, done.out, done.err):
        assert "canary" not in text
    for path in home.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes()
    refused = cli("config", "set", "mail.smtp_password", "canary-secret-4711", check=False)
    assert refused.code == 3 and "canary" not in refused.err + refused.out


def test_without_a_server_it_says_how_to_set_one(cli: Cli) -> None:
    id = stage(cli, "a@x.org", "--from", "b@x.org")
    result = cli("mail", "release", id, "--yes", check=False)
    assert result.code == 3 and "mail.smtp_host" in result.err and state(cli, id) == "held"


@pytest.mark.parametrize(
    "words",
    [("release",), ("cancel",), ("cancel", "x", "--all"), ("release", "x", "--all"), ("pending", "--to", "a@x.org"),
     ("stage", "x"), ("stage", "--to", "a@x.org", "--yes"), ("send",), ("stage", "--subject", "s"),
     ("stage", "--to", "a@x.org", "--attach", "missing"), ("stage", "--eml", "README.md", "--subject", "s"),
     ("stage", "--to", "a@x.org", "--body", "x", "--body-file", "README.md"), ("release", "zzzz", "--yes")],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error_of_usage(cli: Cli, sink: Sink, words: tuple[str, ...]) -> None:
    cli("checkpoint", "base")
    assert cli("mail", *words, check=False).code == 2 and sink.heard == []


def test_old_settled_messages_are_swept_and_held_ones_never(cli: Cli, sink: Sink, home: Path) -> None:
    kept, gone, canceled = (stage(cli, subject=name) for name in ("kept", "gone", "canceled"))
    cli("mail", "release", gone, "--yes")
    cli("mail", "cancel", canceled)
    files = [home / "mail" / f"{id}.eml" for id in (kept, gone, canceled)]
    cli("mail", "pending")
    assert all(file.exists() for file in files)
    for file in files:
        os.utime(file, (1, 1))
    cli("mail", "pending")
    assert [file.exists() for file in files] == [True, False, False]
