"""`unprotect`: no trace is left."""

from __future__ import annotations

from pathlib import Path

from support import Cli


def test_unprotect_gives_back_the_same_bytes(cli: Cli, settings: Path) -> None:
    before = settings.read_bytes()
    cli("protect")
    assert cli("unprotect", "--dry-run").out.count("hook claude-code") > 5
    assert settings.read_bytes() != before
    cli("unprotect")
    assert settings.read_bytes() == before
    assert "no hook of ours" in cli("unprotect").out


def test_what_the_person_changed_since_stays(cli: Cli, settings: Path) -> None:
    cli("protect")
    settings.write_text(settings.read_text().replace('"x"', '"y"'))
    answer = cli("unprotect", "--json").json
    assert [change["change"] for change in answer["changes"]] == ["remove"]
    assert '"y"' in settings.read_text()
    assert "// mine" in settings.read_text()
    assert "hook claude-code" not in settings.read_text()
