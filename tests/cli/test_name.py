"""`reprieve name`."""

from __future__ import annotations

from support import Cli


def test_a_name_given_later_is_a_ref(cli: Cli) -> None:
    id = cli("checkpoint", "-q").out.strip()
    assert cli("name", "latest", "it worked here", "--json").json["id"] == id
    assert cli("show", "it worked here", "--json").json["entry"]["id"] == id
    assert '"it worked here"' in cli("log").out


def test_the_name_wins_over_the_label_and_can_go_again(cli: Cli) -> None:
    id = cli("checkpoint", "label", "-q").out.strip()
    cli("name", id, "name")
    assert cli("log", "--json").json["entries"][0]["label"] == "name"
    cli("name", id, "")
    assert cli("log", "--json").json["entries"][0]["label"] == "label"


def test_naming_does_not_break_the_chain(cli: Cli) -> None:
    cli("checkpoint")
    cli("name", "latest", "x")
    assert cli("verify").code == 0


def test_both_words_are_needed(cli: Cli) -> None:
    assert cli("name", "latest", check=False).code == 2
