"""`reprieve config`."""

from __future__ import annotations

from pathlib import Path

from reprieve.app.config import KEYS
from support import Cli
from support.settings import write_accepted


def test_every_setting_is_listed_with_its_origin(cli: Cli, project: Path, tmp_path: Path) -> None:
    cli("init")
    (tmp_path / "config.toml").write_text('exclude = ["*.iso"]\n')
    write_accepted(project, "max_file_size = 5\n")
    answer = cli("config", "--json", env={"REPRIEVE_RETENTION_KEEP_DAYS": "7"}).json
    settings = {setting["key"]: (setting["value"], setting["origin"]) for setting in answer["settings"]}
    assert set(settings) == {key.name for key in KEYS}
    assert settings["exclude"] == (["*.iso"], str(tmp_path / "config.toml"))
    assert settings["max_file_size"] == (5, str(project / "reprieve.toml"))
    assert settings["retention.keep_days"] == (7, "REPRIEVE_RETENTION_KEEP_DAYS")
    assert settings["cross_mounts"] == (False, "default")
    out = cli("config").out
    assert all(key.name in out for key in KEYS)


def test_set_get_and_unset(cli: Cli, tmp_path: Path) -> None:
    cli("config", "set", "max_file_size", "2GB")
    cli("config", "set", "exclude", "node_modules/", "*.iso")
    assert cli("config", "get", "max_file_size").out == "2000000000\n"
    assert cli("config", "get", "exclude").out == "node_modules/\n*.iso\n"
    assert cli("config", "get", "exclude", "--json").json["value"] == ["node_modules/", "*.iso"]
    cli("config", "unset", "max_file_size")
    assert cli("config", "get", "max_file_size").out == "0\n"
    assert (tmp_path / "config.toml").read_text() == 'exclude = ["node_modules/", "*.iso"]\n'


def test_path(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "path").out == f"{tmp_path / 'config.toml'}\n"


def test_an_unknown_key_is_exit_3_with_the_nearest(cli: Cli) -> None:
    for args in (("get", "exclud"), ("set", "exclud", "x"), ("unset", "exclud")):
        result = cli("config", *args, check=False)
        assert result.code == 3
        assert "did you mean 'exclude'?" in result.err


def test_a_wrong_value_is_exit_3_and_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "set", "max_file_size", "much", check=False).code == 3
    assert cli("config", "set", "cross_mounts", "perhaps", check=False).code == 3
    assert not (tmp_path / "config.toml").exists()


def test_wrong_use_is_exit_2(cli: Cli) -> None:
    for args in (("get",), ("set", "exclude"), ("list", "exclude"), ("frob",), ("set", "cross_mounts", "1", "2")):
        assert cli("config", *args, check=False).code == 2


def test_mistakes_in_the_trees_file_are_shown(cli: Cli, project: Path) -> None:
    cli("init")
    (project / "reprieve.toml").write_text("cross_mounts = true\n")
    result = cli("config")
    assert "Warning: reprieve.toml: 'cross_mounts' can be set only in the user's configuration" in result.err


def test_settings_are_shown_outside_a_workspace_too(cli: Cli, tmp_path: Path) -> None:
    assert "exclude = none" in cli("config", cwd=tmp_path).out


def test_a_comment_behind_a_value_stays(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('exclude = [\n  "#a",\n]  # not "these"\nmax_file_size = 5 # small\n')
    cli("config", "set", "exclude", "#c")
    cli("config", "set", "max_file_size", "6")
    assert (tmp_path / "config.toml").read_text() == 'exclude = ["#c"]  # not "these"\nmax_file_size = 6 # small\n'
