"""`reprieve effects`: what was done outside of the folder; and where else it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli


def test_none_yet(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("effects").out == "No effects\n"
    assert cli("effects", "--json").json["effects"] == []


@pytest.mark.parametrize("command", ["keep", "effects --since", "compensate"])
@pytest.mark.parametrize("name", ["nosuch", "call:nosuch"])
def test_a_name_that_means_nothing_is_an_error_also_before_the_first_effect(cli: Cli, command: str, name: str) -> None:
    """Exit 2, and not "nothing to do": a slip of the pen must not look like an answer."""
    cli("checkpoint", "base")
    refused = cli(*command.split(), name, check=False)
    assert refused.code == 2 and name in refused.err
    assert cli(*command.split(), "base", check=False).code == (2 if command == "keep" else 0)  # `base` ends no step
    assert cli(command.split()[0]).code == 0


def test_newest_first_with_class_state_and_whether_it_can_be_undone(cli: Cli) -> None:
    cli("checkpoint")
    for name in ("one", "two"):
        cli("record", "command", "--description", name, "--", "true")
    lines = cli("effects").out.splitlines()
    assert [line.split("  ")[1] for line in lines] == ["two", "one"]
    assert lines[0].endswith("[compensable, done]  can be undone")


def test_since_a_checkpoint_and_pending(cli: Cli) -> None:
    cli("record", "command", "--description", "old", "--", "true")
    cli("checkpoint", "mid")
    cli("record", "command", "--description", "new", "--", "true")
    assert [e["description"] for e in cli("effects", "--since", "mid", "--json").json["effects"]] == ["new"]
    cli("compensate", "mid", "--execute", "--yes")
    assert [e["description"] for e in cli("effects", "--pending", "--json").json["effects"]] == ["old"]


def test_they_are_in_log_status_diff_and_show(cli: Cli, project: Path) -> None:
    cli("checkpoint", "base")
    cli("record", "command", "--description", "made a bucket", "--", "true")
    id = cli("effects", "--json").json["effects"][0]["id"]
    for command in (("status",), ("diff",), ("diff", "base"), ("log",)):
        assert "made a bucket" in cli(*command).out, command
    assert [e["kind"] for e in cli("log", "--json").json["entries"]] == ["effect", "checkpoint"]
    assert cli("status", "--json").json["effects"][0]["id"] == id
    assert cli("diff", "--json").json["effects"][0]["id"] == id
    shown = cli("show", id).out
    assert "made a bucket" in shown and '"argv"' in shown
    assert cli("show", id, "--json").json["effect"]["id"] == id
    cli("checkpoint", "after")
    assert cli("show", "after", "--json").json["effects"][0]["id"] == id
    assert cli("log", "--search", "bucket", "--json").json["entries"][0]["id"] == id


def test_s07_what_an_agent_wrote_is_shown_escaped_and_complete(cli: Cli) -> None:
    nasty = "\u202eevil\u200b\x1b[2J" + "x" * 5000 + "END"
    cli("record", "command", "--description", "d", "--", "echo", nasty)
    shown = cli("rollback", "--dry-run").out
    assert "\u202e" not in shown and "\x1b" not in shown and "\u200b" not in shown
    assert "x" * 5000 + "END" in shown
