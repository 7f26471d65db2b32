"""The protocol's own conformance suite against our server, and its inspector; counts are in docs/testing.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.node import program

TESTING = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
# what needs no fixture: these pass on the server as it is
PLAIN = {
    "server-initialize": 1, "ping": 1, "tools-list": 1, "resources-list": 1, "prompts-list": 1,
    "server-sse-multiple-streams": 2, "dns-rebinding-protection": 2,
}  # fmt: skip
# the rest passes on a test-only build that has the suite's fixtures beside our tools
WITH_FIXTURES = {
    **PLAIN, "logging-set-level": 1, "completion-complete": 1, "tools-call-simple-text": 1, "tools-call-image": 1,
    "tools-call-audio": 1, "tools-call-embedded-resource": 1, "tools-call-mixed-content": 1,
    "tools-call-with-logging": 1, "tools-call-error": 1, "tools-call-with-progress": 1, "tools-call-sampling": 1,
    "tools-call-elicitation": 1, "elicitation-sep1034-defaults": 5, "elicitation-sep1330-enums": 5,
    "resources-read-text": 1, "resources-read-binary": 1, "resources-templates-read": 1, "resources-subscribe": 1,
    "resources-unsubscribe": 1, "prompts-get-simple": 1, "prompts-get-with-args": 1,
    "prompts-get-embedded-resource": 1, "prompts-get-with-image": 1,
}  # fmt: skip
PENDING = {"json-schema-2020-12": 4, "server-sse-polling": 0}


@contextmanager
def serving(project: Path, *words: str) -> Iterator[str]:
    tests = str(Path(__file__).resolve().parents[1])
    environ = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{tests}"}
    command = [sys.executable, "-m", "support.conformance", *words]
    with subprocess.Popen(command, cwd=project, env=environ, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def results(url: str, *more: str) -> dict[str, tuple[int, int]]:
    """(passed, failed) of each scenario."""
    command = [program("conformance", "mcp"), "server", "--url", url, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rows = re.findall(r"^. ([a-z0-9-]+): (\d+) passed, (\d+) failed", done.stdout, re.M)
    return {name: (int(passed), int(failed)) for name, passed, failed in rows}


def test_the_server_as_it_is_passes_every_scenario_without_fixtures(project: Path) -> None:
    with serving(project) as url:
        found = results(url)
    assert {name: found[name] for name in PLAIN} == {name: (count, 0) for name, count in PLAIN.items()}


def test_a_build_with_the_suites_fixtures_passes_every_scenario(project: Path) -> None:
    with serving(project, "fixtures") as url:
        assert results(url) == {name: (count, 0) for name, count in WITH_FIXTURES.items()}
        assert results(url, "--suite", "pending") == {name: (count, 0) for name, count in PENDING.items()}


def test_the_counts_are_in_the_docs() -> None:
    text = TESTING.read_text()
    assert f"{sum(PLAIN.values())} checks in {len(PLAIN)} scenarios" in text
    assert f"{sum(WITH_FIXTURES.values())} checks in {len(WITH_FIXTURES)} scenarios" in text
    for name in PLAIN:
        assert f"`{name}`" in text


def inspect(project: Path, *words: str) -> object:
    command = [program("mcp-inspector", "mcp"), "--cli", sys.executable, "-m", "reprieve", "mcp"]
    # the inspector passes only a few variables on to the server
    environ = [f"{n}={os.environ[n]}" for n in ("REPRIEVE_HOME", "REPRIEVE_CONFIG", "REPRIEVE_HELPER", "PYTHONPATH")]
    given = [word for pair in environ for word in ("-e", pair)]
    done = subprocess.run(
        [*command[:2], *given, *command[2:], *words],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_inspector_lists_and_calls_tools(project: Path) -> None:
    listed = inspect(project, "--method", "tools/list")
    assert isinstance(listed, dict)
    assert len(listed["tools"]) == 30
    call = ("--method", "tools/call", "--tool-name", "reprieve_checkpoint", "--tool-arg", "label=inspected")
    made = inspect(project, *call)
    assert isinstance(made, dict)
    assert made["structuredContent"]["checkpoint"]["label"] == "inspected"


@pytest.mark.parametrize("method", ["resources/list", "prompts/list"])
def test_the_inspector_lists_resources_and_prompts(project: Path, method: str) -> None:
    found = inspect(project, "--method", method)
    assert isinstance(found, dict)
    assert next(iter(found.values()))
