"""`reprieve deny`: a no to one exact action."""

from __future__ import annotations

from support import Cli


def test_what_was_denied_waits_no_more_and_is_not_done(cli: Cli, waiting: str) -> None:
    assert cli("deny", waiting, "--json").json["approval"]["state"] == "denied"
    assert cli("approvals").out == "Nothing waits\n"
    assert cli("deny", waiting, check=False).code == 5
    assert cli("rollback", "base", "--yes", check=False).code == 5
