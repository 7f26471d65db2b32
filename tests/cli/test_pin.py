"""`reprieve pin`."""

from __future__ import annotations

from support import Cli


def test_pin_and_remove(cli: Cli) -> None:
    id = cli("checkpoint", "-q").out.strip()
    assert cli("pin", "latest", "--json").json == {"ok": True, "command": "pin", "id": id, "pinned": True}
    assert cli("log", "--json").json["entries"][0]["pinned"]
    assert "pinned" in cli("log").out
    cli("pin", id, "--remove")
    assert not cli("log", "--json").json["entries"][0]["pinned"]


def test_a_ref_that_names_nothing_is_exit_2(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("pin", "xyzzy", check=False).code == 2
