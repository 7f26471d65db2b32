"""`reprieve approvals`: what waits for a person."""

from __future__ import annotations

from support import Cli


def test_nothing_waits(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("approvals").out == "Nothing waits\n"
    assert cli("approvals", "--json").json["approvals"] == []


def test_s03_what_an_agent_wrote_is_shown_in_full(cli: Cli, waiting: str) -> None:
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert approval["id"] == waiting
    assert {"id", "action", "class", "hash", "expires_at"} <= set(approval)
    assert "sh -c 'touch pwned'" in approval["action"] and "sh -c 'touch pwned'" in cli("approvals").out


def test_asking_again_does_not_pile_up(cli: Cli, waiting: str) -> None:
    for _ in range(3):
        cli("rollback", "base", "--yes", check=False)
    assert [a["id"] for a in cli("approvals", "--json").json["approvals"]] == [waiting]
