"""What the hot path loads. A checkpoint runs before every step of an agent; each import is paid every time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import SRC

HEAVY = {
    "argparse",
    "asyncio",
    "ast",
    "concurrent.futures",
    "dataclasses",
    "datetime",
    "difflib",
    "email",
    "enum",
    "hashlib",
    "importlib.metadata",
    "inspect",
    "json",
    "logging",
    "pathlib",
    "pathspec",
    "platformdirs",
    "re",
    "shutil",
    "signal",
    "subprocess",
    "tempfile",
    "threading",
    "tomllib",
    "traceback",
    "typing",
    "urllib",
    "uuid",
    "zoneinfo",
}
SCRIPT = """
import sys
sys.path.insert(0, {source!r})
sys.argv = ["reprieve", *{args!r}]
from reprieve.cli.main import main
code = main()
sys.stderr.write("\\nLOADED " + " ".join(sys.modules))
sys.exit(code)
"""


def loaded(project: Path, *args: str) -> set[str]:
    """The modules that a command has loaded when it is done, in a bare interpreter."""
    done = subprocess.run(
        # -I -S: what site packages and .pth files of this environment load is not ours
        [sys.executable, "-I", "-S", "-c", SCRIPT.format(source=str(SRC), args=args)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize("command", [("checkpoint",), ("rollback",), ("revert", "README.md"), ("redo",)])
def test_the_hot_path_loads_nothing_heavy(cli: object, project: Path, command: tuple[str, ...]) -> None:
    loaded(project, "checkpoint")
    (project / "README.md").write_text("changed")
    if command == ("redo",):
        loaded(project, "rollback")
    heavy = loaded(project, *command) & HEAVY
    assert not heavy, f"{command[0]} loads {sorted(heavy)}; `python -X importtime` says who asks for it"


def test_a_command_loads_no_other_command(cli: object, project: Path) -> None:
    prefix = "reprieve.cli.commands."
    mine = {name for name in loaded(project, "checkpoint") if name.startswith(prefix)}
    assert mine == {prefix + "checkpoint"}


HOOK = """
import os, sys
sys.path.insert(0, {source!r})
sys.argv = ["reprieve", "hook", "claude-code", "PreToolUse"]
real = os._exit
def end(code):
    sys.stderr.write("\\nLOADED " + " ".join(sys.modules))
    sys.stderr.flush()
    real(code)
os._exit = end
from reprieve.cli.entry import run
run()
"""


def loaded_by_hook(project: Path, tool: str) -> set[str]:
    payload = {
        "session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": tool,
        "tool_input": {"command": "make"}, "tool_use_id": f"toolu_{tool}",
    }  # fmt: skip
    script = [sys.executable, "-I", "-S", "-c", HOOK.format(source=str(SRC))]
    done = subprocess.run(script, cwd=project, input=json.dumps(payload).encode(), capture_output=True, check=True)
    said, _, names = done.stderr.decode().rpartition("LOADED ")
    assert not said.strip(), said
    return set(names.split())


def test_the_hook_loads_nothing_heavy_and_nothing_of_the_command_line(cli: object, project: Path) -> None:
    loaded_by_hook(project, "Bash")
    found = loaded_by_hook(project, "Write")
    assert not found & HEAVY
    assert {name for name in found if name.startswith("reprieve.cli")} == {
        "reprieve.cli", "reprieve.cli.entry", "reprieve.cli.hooking", "reprieve.cli.hot",
    }  # fmt: skip
    assert {name for name in found if name.startswith("reprieve.agents")} == {
        "reprieve.agents", "reprieve.agents.claude_code", "reprieve.agents.reading", "reprieve.agents.registry",
    }  # fmt: skip
    assert {name for name in found if name.startswith("reprieve.rollback")} == set()
    # of use with the helper, to a move of files, or to an agent that gives calls no id
    assert not found & {"array", "reprieve.files.disbelief", "reprieve.model.plan", "zlib"}


def test_a_hook_for_a_call_that_only_reads_loads_neither_store_nor_files(cli: object, project: Path) -> None:
    found = {name for name in loaded_by_hook(project, "Read") if name.startswith("reprieve.")}
    assert {name.split(".")[1] for name in found} == {"agents", "cli", "errors", "model", "policy"}
    assert "collections" not in loaded_by_hook(project, "Read")


def test_json_is_loaded_for_those_who_ask_for_it(cli: object, project: Path) -> None:
    assert "json" in loaded(project, "checkpoint", "--json")


def test_importing_the_package_loads_nothing_else() -> None:
    script = f"import sys; sys.path.insert(0, {str(SRC)!r}); old = set(sys.modules); import reprieve\n"
    script += "print(list(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.replace("'", '"'))) <= {"reprieve", "__future__"}
