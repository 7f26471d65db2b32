"""`reprieve checkpoint`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from support import Cli
from support.settings import write_accepted


def test_the_id_is_the_last_word_of_the_last_line(cli: Cli) -> None:
    id = cli("checkpoint", "a label").out.split()[-1]
    assert cli("show", id, "--json").json["entry"]["label"] == "a label"


@pytest.mark.parametrize(
    "label",
    ["latest", "~1", "step:deps", "call:7", "turn:1", "session:x", "10m ago", "2026-11-17", "2026-11-17T10:00", "ID"],
)
def test_a_label_that_no_ref_could_mean_is_refused_with_another(cli: Cli, label: str) -> None:
    """Nothing is taken or renamed; the label that the hint offers means the checkpoint that has it."""
    first = cli("checkpoint", "-q").out.strip()
    label = first if label == "ID" else label
    for words in (["checkpoint", label], ["name", "latest", label]):
        refused = cli(*words, "--json", check=False)
        assert refused.code == 2 and refused.json["error"]["code"] == "usage"
        assert f"'{label}' can't be a label" in refused.json["error"]["message"]
    assert [entry["label"] for entry in cli("log", "--json").json["entries"]] == [""]
    other = refused.json["error"]["hints"][0].partition("'")[2].removesuffix("'")
    second = cli("checkpoint", other, "-q").out.strip()
    assert cli("show", other, "--json").json["entry"]["id"] == second


def test_a_label_that_only_looks_like_something_else_means_its_checkpoint(cli: Cli) -> None:
    for label in ("step:", "turn:x", "turn", "~", "~x", "later", "2026", "10m", "aaaaaaaaaa", "-x", " "):
        id = cli("checkpoint", "-q", "--", label).out.strip()
        cli("checkpoint")
        assert cli("show", "--json", "--", label).json["entry"]["id"] == id


def test_json_has_every_field(cli: Cli, project: Path) -> None:
    answer = cli("checkpoint", "first", "--note", "why", "--pin", "--json").json
    assert (answer["ok"], answer["command"]) == (True, "checkpoint")
    made = answer["checkpoint"]
    assert {"id", "label", "created_at", "actor", "step", "files", "bytes", "changed", "gaps"} <= made.keys()
    assert (made["label"], made["note"], made["pinned"], made["gaps"]) == ("first", "why", True, [])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made["created_at"])
    assert made["files"] == sum(1 for path in project.rglob("*") if not path.is_dir() or path.is_symlink())


def test_only_what_changed_is_counted(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    assert cli("checkpoint", "--json").json["checkpoint"]["changed"] == 0
    (project / "new").write_text("x")
    (project / "README.md").write_text("y")
    assert cli("checkpoint", "--json").json["checkpoint"]["changed"] == 2
    assert "nothing changed" in cli("checkpoint").out


def test_what_is_excluded_is_named_as_a_gap(cli: Cli, project: Path) -> None:
    write_accepted(project, 'exclude = ["*.bin"]\n')
    gaps = cli("checkpoint", "--json").json["checkpoint"]["gaps"]
    assert [gap["path"] for gap in gaps] == ["data.bin"]
    assert gaps[0]["reason"]
    assert "data.bin" in cli("checkpoint").out


def test_a_mistake_in_the_trees_own_settings_is_a_warning(cli: Cli, project: Path) -> None:
    (project / "reprieve.toml").write_text("exlude = []\n")
    result = cli("checkpoint")
    assert "Warning: " in result.err and "'exlude'" in result.err


def test_it_makes_the_workspace_where_it_stands(cli: Cli, project: Path) -> None:
    cli("checkpoint", cwd=project / "src")
    assert cli("log", check=False).code == 3
    assert len(cli("log", "--json", cwd=project / "src").json["entries"]) == 1


def test_inside_a_workspace_it_is_the_workspaces(cli: Cli, project: Path) -> None:
    cli("init")
    cli("checkpoint", cwd=project / "src")
    assert cli("log", "--json").json["entries"][0]["files"] > 2


@pytest.mark.parametrize("label", ["--pin", "ünï ☃", "\x1b[31mred", "a\nb"])
def test_any_text_is_a_label(cli: Cli, label: str) -> None:
    made = cli("checkpoint", "--json", "--", label).json["checkpoint"]
    assert made["label"] == label
    assert "\x1b" not in cli("log").out


def test_home_and_root_are_refused_without_the_flag(cli: Cli, project: Path) -> None:
    env = {"HOME": str(project)}
    refused = cli("checkpoint", "--json", env=env, check=False)
    assert refused.code == 5
    assert refused.json["error"]["code"] == "refused"
    assert cli("checkpoint", "-C", "/", env=env, check=False).code == 5
    assert cli("checkpoint", "--anywhere", env=env).code == 0


def test_no_label_ends_up_in_the_environment_or_the_tree(cli: Cli, project: Path) -> None:
    before = sorted(os.listdir(project))
    cli("checkpoint", "x")
    assert sorted(os.listdir(project)) == before
