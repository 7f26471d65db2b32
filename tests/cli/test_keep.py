"""`reprieve keep`: what was accepted is never undone."""

from __future__ import annotations

from support import Cli


def test_p_24_all_up_to_now(cli: Cli) -> None:
    cli("checkpoint", "base")
    for name in ("one", "two"):
        cli("record", "command", "--description", name, "--", "false")
    assert cli("keep", "--json").json["effects"][0]["undo_state"] == "kept"
    assert cli("rollback", "base", "--yes").code == 0
    assert cli("effects", "--pending").out == "No effects\n"


def test_those_of_one_step(cli: Cli) -> None:
    cli("checkpoint", "base")
    command = "python -m reprieve record command --description {} -- false"
    for name in ("one", "two"):
        cli("run", "--label", name, "--", "sh", "-c", command.format(name))
    cli("keep", "step:one")
    assert [e["description"] for e in cli("effects", "--pending", "--json").json["effects"]] == ["two"]


def test_nothing_to_keep_is_no_error_and_an_unknown_step_is(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("keep").out == "0 effects kept\n"
    cli("record", "command", "--description", "d", "--", "true")
    assert cli("keep", "nothing-like-that", check=False).code == 2
