"""`reprieve help`."""

from __future__ import annotations

import pytest

from reprieve.cli.catalog import NAMES
from support import Cli


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself_with_two_examples(cli: Cli, name: str) -> None:
    out = cli(name, "--help").out
    examples = out.partition("\nExamples:\n")[2]
    assert examples.count("reprieve") >= 2
    assert f"Usage: reprieve {name}" in out
    assert max(map(len, out.splitlines())) <= 120


def test_json_has_the_text(cli: Cli) -> None:
    assert "Usage: reprieve gc" in cli("gc", "--help", "--json").json["text"]


def test_an_unknown_command_is_exit_2(cli: Cli) -> None:
    assert cli("help", "rolback", check=False).code == 2
