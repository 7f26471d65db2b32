"""`reprieve forget`."""

from __future__ import annotations

import random
from pathlib import Path

from reprieve.app import care, finding
from reprieve.model.chunks import decode_chunks
from reprieve.model.timeline import FORGET, Draft
from support import Cli
from support.terminal import at_terminal

SECRET = b"hunter2-hunter2-hunter2-" * 40
LARGE = random.Random(7).randbytes(3_000_000)  # kept in pieces


def test_the_content_is_gone_from_the_store_and_stays_in_the_tree(cli: Cli, project: Path, home: Path) -> None:
    (project / "secret").write_bytes(SECRET)
    cli("checkpoint")
    answer = cli("forget", "secret", "--yes", "--json").json
    assert answer["objects"] == 1
    assert answer["remaining"] == []
    assert (project / "secret").read_bytes() == SECRET
    assert not any(SECRET[:48] in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_dry_run_removes_nothing(cli: Cli, project: Path) -> None:
    (project / "secret").write_bytes(SECRET)
    cli("checkpoint")
    assert cli("forget", "secret", "--dry-run", "--json").json["dry_run"]
    (project / "secret").unlink()
    cli("rollback")
    assert (project / "secret").read_bytes() == SECRET


def test_it_needs_a_person_or_a_yes(cli: Cli, project: Path) -> None:
    (project / "secret").write_bytes(SECRET)
    cli("checkpoint")
    refused = cli("forget", "secret", check=False)
    assert refused.code == 5
    assert "--yes" in refused.err
    assert at_terminal("forget", "secret", cwd=project, answer="n\n")[0] == 5
    assert at_terminal("forget", "secret", cwd=project, answer="y\n")[0] == 0


def test_content_that_another_path_shares_stays_and_is_named(cli: Cli, project: Path) -> None:
    (project / "secret").write_bytes(SECRET)
    (project / "copy").write_bytes(SECRET)
    cli("checkpoint")
    result = cli("forget", "secret", "--yes", "--json", check=False)
    assert result.code == 1
    assert result.json["remaining"] == ["copy"]


def test_pieces_that_another_large_file_shares_stay_and_it_is_named(cli: Cli, project: Path) -> None:
    (project / "leaked").write_bytes(LARGE)
    (project / "report").write_bytes(LARGE + b"the work of a week")
    (project / "apart").write_bytes(LARGE[::-1])
    cli("checkpoint", "all")
    (project / "leaked").unlink()
    would = cli("forget", "leaked", "--dry-run", "--json", check=False)
    result = cli("forget", "leaked", "--yes", "--json", check=False)
    assert (result.code, result.json["remaining"]) == (would.code, would.json["remaining"]) == (1, ["report"])
    assert result.json["objects"] == would.json["objects"] >= 1
    (project / "report").unlink()
    cli("verify")
    cli("revert", "report", "--to", "all")
    assert (project / "report").read_bytes() == LARGE + b"the work of a week"


def test_the_shared_pieces_go_with_the_last_path_that_has_them(cli: Cli, project: Path, home: Path) -> None:
    (project / "leaked").write_bytes(LARGE)
    (project / "report").write_bytes(LARGE + b"the work of a week")
    cli("checkpoint")
    cli("forget", "leaked", "--yes", check=False)
    assert cli("forget", "report", "--yes", "--json").json["remaining"] == []
    assert sum(path.stat().st_size for path in (home / "packs").iterdir()) < len(LARGE) // 2
    cli("verify")


def test_a_kept_file_whose_piece_went_with_another_is_named_and_heals(cli: Cli, project: Path) -> None:
    """As stores are that had a forget before it looked at the pieces of other files."""
    (project / "report").write_bytes(LARGE)
    cli("checkpoint")
    with finding.open_workspace(project) as ws, ws.store.gc_lock():
        entry = next(entry for path, _, entry in ws.capture.changes_between(0, 1) if path == b"report")
        assert entry is not None and entry.is_chunked
        piece = decode_chunks(ws.store.blobs.get(entry.content))[0][1]
        ws.timeline.append(Draft(FORGET, ws.clock(), data=f'{{"path":"leaked","objects":["{piece.hex()}"]}}'))
        ws.store.blobs.collect(care._live(ws) - {piece})
    found = cli("verify", check=False)
    assert found.code == 13
    assert "report" in found.err
    cli("checkpoint", "healed")
    cli("verify")
    (project / "report").unlink()
    cli("rollback", "healed")
    assert (project / "report").read_bytes() == LARGE


def test_a_path_that_no_checkpoint_has_is_exit_2(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("forget", "nothing", "--yes", check=False).code == 2


def test_what_was_forgotten_is_kept_again_by_the_next_checkpoint(cli: Cli, project: Path) -> None:
    """Though the index of the checkpoints before said that nothing had been forgotten."""
    (project / "secret").write_bytes(b"not any more")
    for _ in range(3):
        cli("checkpoint")
    cli("forget", "secret", "--yes")
    for _ in range(2):
        made = cli("checkpoint", "--json").json["checkpoint"]["id"]
        (project / "secret").unlink()
        cli("rollback", made, "--everything", "--yes")
        assert (project / "secret").read_bytes() == b"not any more"


def test_redo_after_it_brings_back_the_rest_and_names_what_was_forgotten(cli: Cli, project: Path) -> None:
    """The store is whole: what is missing was removed by a person."""
    (project / "secret").write_bytes(SECRET)
    cli("checkpoint", "start")
    cli("run", "--", "sh", "-c", "echo other > secret; echo x > made")
    cli("rollback", "start")
    cli("forget", "secret", "--yes")
    redone = cli("redo", "--json", check=False)
    assert redone.code == 6
    assert [gap["path"] for gap in redone.json["report"]["not_undone"]] == ["secret"]
    assert (project / "made").exists() and (project / "secret").read_bytes() == SECRET
    cli("diff", "start", check=False)
    cli("verify")


def test_a_secret_in_a_tracked_file_can_be_forgotten(cli: Cli, project: Path, tmp_path: Path, home: Path) -> None:
    outside = tmp_path / "elsewhere" / "zshrc"
    outside.parent.mkdir()
    outside.write_text("export TOKEN=hunter2-" + "x" * 60)
    cli("init")
    cli("track", str(outside))
    cli("checkpoint")
    outside.write_text("export TOKEN=")
    cli("checkpoint")
    result = cli("forget", str(outside), "--yes", "--json")
    assert result.json["objects"] >= 1
    assert not any(b"hunter2" in pack.read_bytes() for pack in (home / "packs").iterdir())
    assert outside.read_text() == "export TOKEN="
    assert cli("forget", str(tmp_path / "nowhere"), "--yes", check=False).code == 2
