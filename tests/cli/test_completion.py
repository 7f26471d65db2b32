"""`reprieve completion`, and the question that the shells ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.cli.catalog import NAMES
from support import Cli


def ask(cli: Cli, *words: str) -> list[str]:
    return [line.partition("\t")[0] for line in cli("__complete", "--", *words).out.splitlines()]


def test_commands(cli: Cli) -> None:
    assert ask(cli, "") == list(NAMES)
    assert ask(cli, "re") == ["revert", "redo", "record"]
    assert ask(cli, "-C", "/tmp", "ch") == ["checkpoint"]


def test_options_choices_and_files(cli: Cli) -> None:
    assert ask(cli, "rollback", "--on") == ["--only", "--on-conflict"]
    assert ask(cli, "rollback", "--on-conflict", "") == ["abort", "keep", "theirs", "merge", "both"]
    assert ask(cli, "revert", "x") == [":files"]
    assert ask(cli, "diff", "--", "") == [":files"]
    assert ask(cli, "completion", "") == ["bash", "zsh", "fish", "powershell"]
    assert ask(cli, "run", "--", "") == [":commands"]
    assert "retention.keep_last" in ask(cli, "config", "get", "ret")


def test_ids_come_with_their_labels(cli: Cli) -> None:
    id = cli("checkpoint", "a good one", "-q").out.strip()
    assert f"{id}\ta good one, just now" in cli("__complete", "--", "show", "").out
    assert ask(cli, "rollback", id[:2]) == [id]
    assert ask(cli, "status", "--since", "")[0] == id


def test_without_a_workspace_it_is_silent(cli: Cli, tmp_path: Path) -> None:
    result = cli("__complete", "--", "show", "", cwd=tmp_path)
    assert (result.out, result.err) == ("", "")


def test_it_is_hidden(cli: Cli) -> None:
    assert "__complete" not in cli("--help").out


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment where `reprieve` is a command."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "reprieve"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m reprieve \"$@\"\n")
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_bash_completes(cli: Cli, project: Path, on_path: dict[str, str]) -> None:
    id = cli("checkpoint", "one", "-q").out.strip()
    script = """
        eval "$(reprieve completion bash)"
        try() { COMP_WORDS=(reprieve "$@"); COMP_CWORD=$#; _reprieve 2>/dev/null; echo "${COMPREPLY[*]}"; }
        try roll
        try rollback --dry
        try show ""
        try revert READ
    """
    done = subprocess.run(["bash", "-c", script], cwd=project, env=on_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["rollback", "--dry-run", f"{id} latest", "README.md"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_in_its_shell(cli: Cli, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n"], input=cli("completion", shell).out, text=True, check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes(cli: Cli, project: Path, on_path: dict[str, str]) -> None:
    script = "reprieve completion fish | source; complete -C 'reprieve rollb'"
    done = subprocess.run(["fish", "-c", script], cwd=project, env=on_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\t")[0] == "rollback"


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_knows_the_function(cli: Cli, project: Path, on_path: dict[str, str]) -> None:
    script = 'autoload -U compinit; compinit -u -D; eval "$(reprieve completion zsh)"; echo $_comps[reprieve]'
    done = subprocess.run(["zsh", "-fc", script], cwd=project, env=on_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "_reprieve"


def test_an_unknown_shell_is_exit_2(cli: Cli) -> None:
    assert cli("completion", "tcsh", check=False).code == 2


def test_json_has_the_script(cli: Cli) -> None:
    assert cli("completion", "powershell", "--json").json["script"].startswith("Register-ArgumentCompleter")
