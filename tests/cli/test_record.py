"""`reprieve record`: an effect with what reverses it; nothing that is not data, no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import Cli
from support.api import Api


def record(cli: Cli, api: Api, *more: str, undo: str = "/things/7", method: str = "DELETE") -> dict[str, object]:
    effect: dict[str, object] = cli(
        "record", "http", "--method", "POST", "--url", api.url + "/things", "--undo-method", method,
        "--undo-url", api.url + undo, *more, "--json",
    ).json["effect"]  # fmt: skip
    return effect


def test_an_effect_has_all_that_the_contract_names(cli: Cli, api: Api) -> None:
    effect = record(cli, api)
    for name in ("id", "seq", "kind", "class", "resource", "state", "undo_state", "description", "inverse"):
        assert name in effect
    assert (effect["kind"], effect["class"], effect["state"]) == ("http", "compensable", "done")


def test_wb_28_values_from_the_response_fill_url_and_body(cli: Cli, api: Api) -> None:
    effect = record(
        cli, api, "--response", '{"id": "a/b", "n": 3}',
        "--undo-json", '{"charge": "{response.id}", "n": "{response.n}"}',
        undo="/refunds/{response.id}", method="POST",
    )  # fmt: skip
    inverse = effect["inverse"]
    assert isinstance(inverse, dict)
    assert inverse["url"] == api.url + "/refunds/a%2Fb"  # one segment, whatever it holds
    assert inverse["json"] == {"charge": "a/b", "n": 3}


def test_a_response_without_the_value_is_an_error(cli: Cli, api: Api) -> None:
    result = cli(
        "record", "http", "--method", "POST", "--url", api.url, "--undo-method", "DELETE",
        "--undo-url", api.url + "/{response.id}", "--response", "{}", check=False,
    )  # fmt: skip
    assert result.code == 2 and "the response has no 'id'" in result.err


def test_s20_an_undo_at_another_origin_is_refused(cli: Cli, api: Api) -> None:
    result = cli(
        "record", "http", "--method", "POST", "--url", api.url, "--undo-method", "POST",
        "--undo-url", "http://169.254.169.254/latest", check=False,
    )  # fmt: skip
    assert result.code == 5 and "an effect is undone where it was done" in result.err
    assert cli("effects").out == "No effects\n"


@pytest.mark.parametrize("path", [":abc/x", ":99999/x", "/a b", "/a\nX-More: 1", "/a\\b", "[::1/x"])
def test_an_undo_that_could_never_be_sent_is_no_undo(cli: Cli, path: str) -> None:
    """It was recorded as one that can be undone, or was a bug of ours."""
    url = f"http://127.0.0.1{path}".replace("127.0.0.1[", "[")
    words = ("--url", url, "--undo-url", url, "--undo-method", "DELETE")
    result = cli("record", "http", "--method", "POST", *words, check=False)
    assert result.code == 2, result.err
    assert cli("effects", "--json").json["effects"] == []


def test_a_credential_in_the_open_is_refused(cli: Cli, api: Api) -> None:
    for header in ("Authorization: Bearer abc123secret", "X-Api-Key: abc123secret"):
        result = cli(
            "record", "http", "--method", "POST", "--url", api.url, "--undo-method", "DELETE",
            "--undo-url", api.url + "/x", "--undo-header", header, check=False,
        )  # fmt: skip
        assert result.code == 5 and "env:VARIABLE" in result.err
        assert "abc123secret" not in result.err


def test_s30_no_secret_of_a_reference_is_kept(cli: Cli, api: Api, home: Path) -> None:
    token = {"TOKEN": "canary-5f2e9a"}
    cli(
        "record", "http", "--method", "POST", "--url", api.url + "/?api_key=canary-5f2e9a", "--undo-method", "DELETE",
        "--undo-url", api.url + "/x", "--undo-header", "Authorization: Bearer env:TOKEN", env=token,
    )  # fmt: skip
    for path in home.rglob("*"):
        if path.is_file():
            assert b"canary-5f2e9a" not in path.read_bytes(), path


def test_s05_a_command_is_an_argument_list_as_it_was_given(cli: Cli, project: Path) -> None:
    words = ("; rm -rf /", "$(touch x)", "a\nb", "*", "-rf")
    effect = cli("record", "command", "--description", "d", "--json", "--", "echo", *words).json["effect"]
    assert effect["inverse"]["steps"][0]["argv"][1:] == list(words)
    assert os.path.isabs(effect["inverse"]["steps"][0]["argv"][0])
    result = cli("rollback", "--yes", "--json").json["report"]["effects"][0]
    assert result["state"] == "undone"
    assert result["detail"].endswith("; rm -rf / $(touch x) a\nb * -rf")
    assert not (project / "x").exists()


def test_s06_a_variable_that_changes_programs_is_not_passed_on(cli: Cli) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "GIT_DIR", "PATH", "BASH_ENV"):
        result = cli("record", "command", "--description", "d", "--env", name, "--", "true", check=False)
        assert result.code == 2 and "not passed on" in result.err


def test_a_program_that_is_not_there_is_said_at_once(cli: Cli) -> None:
    result = cli("record", "command", "--description", "d", "--", "no-such-program-at-all", check=False)
    assert result.code == 2 and "there is no program" in result.err


def test_a_secret_in_a_command_is_refused(cli: Cli) -> None:
    secret = "ghp_" + "a1B2" * 9
    result = cli("record", "command", "--description", "d", "--", "echo", f"--token={secret}", check=False)
    assert result.code == 5 and secret not in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("http",),
        ("http", "--method", "POST"),
        ("http", "--method", "POST", "--url", "http://127.0.0.1:1/", "--undo-method", "POST"),
        ("http", "--method", "POST", "--url", "http://127.0.0.1:1/", "--", "true"),
        ("command", "--description", "d"),
        ("command", "--", "true"),
        ("command", "--description", "d", "--url", "http://x", "--", "true"),
        ("nothing",),
    ],
)
def test_what_makes_no_sense_is_exit_2(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("record", *words, check=False).code == 2


def test_wb_43_a_record_from_a_subfolder_belongs_to_the_same_workspace(cli: Cli, project: Path, api: Api) -> None:
    cli("checkpoint")
    cli("record", "command", "--description", "below", "--", "true", cwd=project / "src")
    assert [effect["description"] for effect in cli("effects", "--json").json["effects"]] == ["below"]
    assert not list(project.rglob(".undo"))
    assert json.loads(cli("effects", "--json", cwd=project / "src").out)["effects"]


def test_a_program_by_its_path_is_that_of_the_directory_that_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    for folder in (project, tmp_path):
        (folder / "undo").write_text("#!/bin/sh\n")
        (folder / "undo").chmod(0o755)
    words = ("record", "command", "--description", "d", "--json", "--", "./undo")
    effect = cli("-C", "project", *words, cwd=tmp_path).json["effect"]
    assert os.path.realpath(effect["inverse"]["steps"][0]["argv"][0]) == os.path.realpath(project / "undo")


def test_a_field_of_a_form_has_a_name_and_a_value_and_comes_once(cli: Cli) -> None:
    cli("checkpoint")
    words = ("record", "http", "--method", "POST", "--url", "http://127.0.0.1/x", "--undo-method", "POST")
    for fields in (("ab",), ("=b",), ("a=1", "a=2")):
        given = [word for field in fields for word in ("--undo-form", field)]
        assert cli(*words, "--undo-url", "http://127.0.0.1/y", *given, check=False).code == 2
