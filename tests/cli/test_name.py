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
    assert cli("show", "label", check=False).code == 2
    assert cli("name", id, "").out == f'{id} is again "label"\n'
    assert cli("log", "--json").json["entries"][0]["label"] == "label"
    assert cli("show", "name", check=False).code == 2


def test_a_label_can_be_taken_away_and_given_to_another(cli: Cli) -> None:
    id = cli("checkpoint", "good", "-q").out.strip()
    assert cli("name", "good", "").out == f"{id} has no name\n"
    assert '"good"' not in cli("log").out and cli("log", "--json").json["entries"][0]["label"] == ""
    cli("name", id, "")  # there is nothing more to take away
    other = cli("checkpoint", "good", "-q").out.strip()
    assert cli("show", "good", "--json").json["entry"]["id"] == other


def test_a_label_that_was_replaced_may_be_anothers(cli: Cli) -> None:
    id = cli("checkpoint", "good", "-q").out.strip()
    cli("name", id, "bad")
    other = cli("checkpoint", "good", "-q").out.strip()
    assert cli("show", "good", "--json").json["entry"]["id"] == other
    assert cli("show", "bad", "--json").json["entry"]["id"] == id


def test_naming_does_not_break_the_chain(cli: Cli) -> None:
    cli("checkpoint")
    cli("name", "latest", "x")
    assert cli("verify").code == 0


def test_both_words_are_needed(cli: Cli) -> None:
    assert cli("name", "latest", check=False).code == 2
