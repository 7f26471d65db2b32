"""`reprieve doctor`."""

from __future__ import annotations

from pathlib import Path

from support import Cli


def test_it_tells_what_it_found(cli: Cli) -> None:
    cli("checkpoint")
    result = cli("doctor", "--json", check=False)
    assert result.code in (0, 1)
    assert result.json["version"] == "0.1.0"
    findings = result.json["findings"]
    assert findings
    assert {finding["level"] for finding in findings} <= {"ok", "warn", "bad"}
    assert (result.code == 0) == all(finding["level"] == "ok" for finding in findings)


def test_it_works_before_there_is_anything(cli: Cli) -> None:
    result = cli("doctor", check=False)
    assert result.code in (0, 1)
    assert result.out.startswith("Reprieve 0.1.0, ")


def test_a_store_that_others_can_write_is_told_with_what_to_do(cli: Cli, home: Path) -> None:
    cli("checkpoint")
    home.chmod(0o777)
    result = cli("doctor", "--json", check=False)
    assert result.code == 1
    (finding,) = [finding for finding in result.json["findings"] if finding["level"] != "ok"]
    assert finding["hint"] == f"chmod 700 {home}"
