"""Settings: what is read from where, and who may set what."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from reprieve.app import config, config_edit, places
from reprieve.errors import Misconfigured


@pytest.fixture(autouse=True)
def nothing_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what all tests set."""
    monkeypatch.delenv("REPRIEVE_HELPER")


@pytest.fixture
def user_file(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "config.toml"


def test_without_files_the_defaults_hold(home: Path, tmp_path: Path) -> None:
    found = config.load(os.fsencode(tmp_path))
    assert found == config.Config()
    assert all(getattr(found, key.attribute) == key.default for key in config.KEYS)
    assert found.origin("exclude") == "default"


def test_every_key_is_a_field_with_the_same_default() -> None:
    fields = {key.attribute for key in config.KEYS}
    assert fields == set(config.Config._fields) - {"origins", "problems", "weaker", "accepted"}


def test_the_users_file_is_read(user_file: Path) -> None:
    user_file.write_text(
        'exclude = ["*.iso"]\nmax_file_size = "2GB"\ncross_mounts = true\n[retention]\nkeep_last = 3\n'
    )
    found = config.load()
    assert found.exclude == ("*.iso",)
    assert found.max_file_size == 2_000_000_000
    assert found.cross_mounts
    assert found.retention_keep_last == 3
    assert found.origin("max_file_size") == str(user_file)


def test_an_unknown_key_is_refused_with_the_nearest_one(user_file: Path) -> None:
    user_file.write_text("retention.keep_lst = 3\n")
    with pytest.raises(Misconfigured) as caught:
        config.load()
    assert "there is no setting 'retention.keep_lst'" in caught.value.message
    assert caught.value.hints == ("did you mean 'retention.keep_last'?",)


@pytest.mark.parametrize(
    "text",
    [
        "max_file_size = -1",
        'max_file_size = "big"',
        "max_file_size = true",
        "exclude = 3",
        "exclude = [1]",
        'cross_mounts = "perhaps"',
        "retention.keep_last = 1.5",
        "not toml",
    ],
)
def test_a_wrong_value_in_the_users_file_is_refused(user_file: Path, text: str) -> None:
    user_file.write_text(text + "\n")
    with pytest.raises(Misconfigured):
        config.load()


def test_the_environment_outranks_files(user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_file.write_text("max_file_size = 10\n")
    (tmp_path / "reprieve.toml").write_text("max_file_size = 5\n")
    monkeypatch.setenv("REPRIEVE_MAX_FILE_SIZE", "1MiB")
    found = config.load(os.fsencode(tmp_path))
    assert found.max_file_size == 1 << 20
    assert found.origin("max_file_size") == "REPRIEVE_MAX_FILE_SIZE"


def test_the_tree_can_lengthen_retention_and_with_a_persons_acceptance_exclude_more(
    user_file: Path, tmp_path: Path
) -> None:
    user_file.write_text('exclude = ["a"]\nmax_file_size = 100\n[retention]\nkeep_last = 10\nkeep_days = 10\n')
    (tmp_path / "reprieve.toml").write_text(
        'exclude = ["b"]\nmax_file_size = 50\n[retention]\nkeep_last = 20\nkeep_days = 5\n'
    )
    found = config.load(os.fsencode(tmp_path))
    assert found.exclude == ("a",)
    assert (found.max_file_size, found.retention_keep_last, found.retention_keep_days) == (100, 20, 10)
    assert [one.key for one in found.weaker] == ["exclude", "max_file_size", "retention.keep_days"]
    assert found.problems == found.accepted == ()
    kept = '{"accepted":{"exclude":["b"],"max_file_size":50,"retention.keep_days":5}}'
    found = config.load(os.fsencode(tmp_path), kept)
    assert found.exclude == ("a", "b")
    assert (found.max_file_size, found.retention_keep_last, found.retention_keep_days) == (50, 20, 5)
    assert found.problems == found.weaker == ()


def test_the_tree_cannot_loosen_anything(user_file: Path, tmp_path: Path) -> None:
    """An agent can edit reprieve.toml; what it says there must not weaken what the user chose."""
    user_file.write_text("max_file_size = 100\n")
    (tmp_path / "reprieve.toml").write_text(
        "max_file_size = 1000\ncross_mounts = true\n[retention]\nkeep_last = 1\nmax_bytes = 1\n"
    )
    found = config.load(os.fsencode(tmp_path))
    assert found == config.Config().replace(
        max_file_size=100, origins=found.origins, problems=found.problems, weaker=found.weaker
    )
    assert [one.key for one in found.weaker] == ["retention.keep_last"]
    assert len(found.problems) == 2
    assert all("only in the user's configuration" in problem for problem in found.problems)


@pytest.mark.parametrize("kind", ["garbage", "binary", "link", "fifo", "directory", "huge", "unknown key"])
def test_a_broken_file_in_the_tree_is_a_problem_and_never_an_error(home: Path, tmp_path: Path, kind: str) -> None:
    """What an agent broke must not stand in the way of the rollback that repairs it."""
    path = tmp_path / "reprieve.toml"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        text = {"garbage": b"]]", "binary": b"\xff\0", "huge": b"#" * (2 << 20), "unknown key": b"exlcude = []"}[kind]
        path.write_bytes(text)
    found = config.load(os.fsencode(tmp_path))
    assert len(found.problems) == 1
    assert found.exclude == ()


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("1500", 1500), ("2GB", 2 * 10**9), ("2 gib", 2 << 30), ("1.5MB", 1_500_000), ("3k", 3000)],
)
def test_sizes_are_read(text: str, number: int) -> None:
    assert config.parse_size(text) == number


@pytest.mark.parametrize("text", ["", "x", "-1", "1i", "1.2.3", "GB", "1 000"])
def test_what_is_no_size_is_none(text: str) -> None:
    assert config.parse_size(text) is None


RETENTION = "[retention]\nkeep_days = 2\n"


def edit(text: str, name: str, line: str | None) -> str:
    return config_edit.edit(text, config.find_key(name), line)


@pytest.mark.parametrize(
    ("before", "name", "line", "after"),
    [
        ("", "max_file_size", "max_file_size = 1", "max_file_size = 1\n"),
        ("", "retention.keep_last", "keep_last = 1", "[retention]\nkeep_last = 1\n"),
        (
            "# mine\nmax_file_size = 2 # two\n",
            "max_file_size",
            "max_file_size = 1",
            "# mine\nmax_file_size = 1 # two\n",
        ),
        (RETENTION, "max_file_size", "max_file_size = 1", "max_file_size = 1\n" + RETENTION),
        (RETENTION, "retention.keep_last", "keep_last = 1", RETENTION + "keep_last = 1\n"),
        (
            'exclude = [\n  "a",\n  "b",\n]\ncross_mounts = true\n',
            "exclude",
            'exclude = ["c"]',
            'exclude = ["c"]\ncross_mounts = true\n',
        ),
        ("max_file_size = 1\ncross_mounts = true\n", "max_file_size", None, "cross_mounts = true\n"),
        ("cross_mounts = true\n", "max_file_size", None, "cross_mounts = true\n"),
    ],
)
def test_one_setting_is_changed_and_the_rest_stays(before: str, name: str, line: str | None, after: str) -> None:
    assert edit(before, name, line) == after
    tomllib.loads(after)


def test_a_file_that_cannot_be_edited_safely_is_left_alone(user_file: Path) -> None:
    text = "retention = { keep_last = 3 }\n"
    user_file.write_text(text)
    with pytest.raises(Misconfigured, match="cannot be changed by this command"):
        config_edit.set_key(str(user_file), config.find_key("retention.keep_days"), 5)
    assert user_file.read_text() == text


def test_a_new_file_is_readable_by_its_owner_alone(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    config_edit.set_key(str(path), config.find_key("exclude"), ("a b", 'q"uote', "ü"))
    assert tomllib.loads(path.read_text(encoding="utf-8")) == {"exclude": ["a b", 'q"uote', "ü"]}
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_linked_configuration_stays_linked(tmp_path: Path, home: Path) -> None:
    """People keep their configuration in a repository and link to it."""
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("")
    link.symlink_to(real)
    config_edit.set_key(str(link), config.find_key("cross_mounts"), True)
    assert link.is_symlink()
    assert real.read_text() == "cross_mounts = true\n"


def test_places_follow_the_environment_and_the_xdg_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REPRIEVE_HOME", "REPRIEVE_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr("sys.platform", "linux")
    assert places.home() == "/home/someone/.local/state/reprieve"
    assert places.user_config() == "/home/someone/.config/reprieve/config.toml"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative, so ignored")
    assert places.home() == "/state/reprieve"
    assert places.user_config() == "/home/someone/.config/reprieve/config.toml"
    monkeypatch.setenv("REPRIEVE_HOME", "~/r")
    assert places.home() == "/home/someone/r"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_platforms_have_absolute_places_of_their_own(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.delenv("REPRIEVE_HOME", raising=False)
    monkeypatch.delenv("REPRIEVE_CONFIG", raising=False)
    monkeypatch.setattr("sys.platform", platform)
    assert os.path.isabs(places.home())
    assert places.user_config().endswith("config.toml")
