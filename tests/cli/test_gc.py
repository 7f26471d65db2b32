"""`reprieve gc`."""

from __future__ import annotations

from support import Cli


def test_nothing_to_free(cli: Cli) -> None:
    cli("checkpoint")
    answer = cli("gc", "--json").json
    assert (answer["objects"], answer["bytes"]) == (0, 0)
    assert cli("gc").out == "Freed 0 bytes in 0 objects\n"


def test_the_store_is_whole_afterwards(cli: Cli) -> None:
    cli("checkpoint")
    cli("gc")
    assert cli("verify").code == 0
