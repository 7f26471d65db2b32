"""`reprieve show`."""

from __future__ import annotations

from pathlib import Path

from support import Cli


def test_it_shows_what_an_entry_changed(cli: Cli, project: Path) -> None:
    cli("checkpoint", "one")
    (project / "README.md").write_text("# A project\n\nIt did things.\n")
    (project / "data.bin").unlink()
    cli("checkpoint", "two", "--note", "something longer")
    answer = cli("show", "two", "--json").json
    assert answer["entry"]["note"] == "something longer"
    changes = {change["path"]: change for change in answer["changes"]}
    assert (changes["README.md"]["added"], changes["README.md"]["removed"]) == (1, 1)
    assert (changes["data.bin"]["change"], changes["data.bin"]["binary"]) == ("deleted", True)
    out = cli("show", "two").out
    assert "something longer" in out
    assert "modified  README.md" in out


def test_the_first_entry_has_nothing_before_it(cli: Cli) -> None:
    cli("checkpoint", "one")
    assert "first of its timeline" in cli("show", "latest").out


def test_what_was_pruned_before_it_is_not_called_no_change(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").write_text("x")
    cli("checkpoint", "kept", "--pin")
    assert cli("show", "kept", "--json").json["changes_known"] is True
    (project / "new").write_text("y")
    cli("checkpoint", "last")
    cli("prune", "--keep-last", "1", "--keep-days", "0", "--yes")
    said = cli("show", "kept").out
    assert "changed nothing" not in said
    assert "It changed 1 path; what was there before it was pruned, so which ones is not known" in said
    answer = cli("show", "kept", "--json").json
    assert (answer["entry"]["changed"], answer["changes"], answer["changes_known"]) == (1, [], False)


def test_a_rollback_is_an_entry_too(cli: Cli, project: Path) -> None:
    cli("checkpoint", "one")
    (project / "README.md").write_text("broken")
    operation = cli("rollback", "--json").json["report"]["operation"]
    answer = cli("show", operation, "--json").json
    assert answer["entry"]["kind"] == "rollback"
    assert [change["path"] for change in answer["changes"]] == ["README.md"]


def test_the_time_that_is_printed_of_an_entry_means_that_entry(cli: Cli, project: Path) -> None:
    ids = []
    for number in range(5):
        (project / "n").write_text(str(number))
        ids.append(cli("checkpoint", "-q").out.strip())
    for entry in cli("log", "--json").json["entries"]:
        assert cli("show", entry["created_at"], "--json").json["entry"]["id"] == entry["id"]
    cli("rollback", cli("show", "latest", "--json").json["entry"]["created_at"])
    assert (project / "n").read_text() == "4"


def test_a_ref_that_names_nothing_is_exit_2(cli: Cli) -> None:
    cli("checkpoint", "one")
    result = cli("show", "xyzzy", "--json", check=False)
    assert result.code == 2
    assert result.json["error"]["code"] == "bad_ref"


def test_an_ambiguous_ref_lists_its_candidates(cli: Cli) -> None:
    ids = [cli("checkpoint", "same", "-q").out.strip() for _ in range(2)]
    result = cli("show", "same", check=False)
    assert result.code == 2
    assert all(id in result.err for id in ids)
