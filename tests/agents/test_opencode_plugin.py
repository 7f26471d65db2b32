"""The plugin that we give opencode does what its reader and writer expect. Runs where `node` is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from reprieve.agents import opencode
from reprieve.agents.machine import Machine, Target

from .scripted import StandIn

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

# What opencode does around one call of a tool.
HOST = """
import { Reprieve } from "./reprieve.mjs"
const where = "/home/ada/project"
const hooks = await Reprieve({ directory: where, worktree: where, serverUrl: new URL("http://127.0.0.1:1") })
const said = { refused: null, output: null }
await hooks["chat.message"]({ sessionID: "ses_1" }, { message: { id: "msg_1" }, parts: [
  { type: "text", text: "tidy up" }, { type: "text", text: "hidden", synthetic: true }] })
const call = { tool: "bash", sessionID: "ses_1", callID: "call_1" }
try {
  await hooks["tool.execute.before"](call, { args: { command: "make" } })
  const result = { title: "make", output: "built", metadata: {} }
  await hooks["tool.execute.after"]({ ...call, args: { command: "make" } }, result)
  said.output = result.output
} catch (error) { said.refused = error.message }
const part = { type: "tool", tool: "bash", sessionID: "ses_1", callID: "call_2" }
for (const status of ["running", "error"]) {
  const state = { status, input: { command: "false" }, error: "exit code 1" }
  await hooks.event({ event: { type: "message.part.updated", properties: { part: { ...part, state } } } })
}
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "ses_1" } } })
await hooks.event({ event: { type: "message.updated", properties: {} } })
console.log(JSON.stringify(said))
"""


# A call of `task`, which has a session of its own work, which has another one work.
FAMILY = """
import { Reprieve } from "./reprieve.mjs"
const parents = { ses_child: "ses_1", ses_grandchild: "ses_child" }
const get = async ({ path }) => {
  if (path.id === "ses_lost") throw new Error("no such session")
  return { data: { id: path.id, parentID: parents[path.id] } }
}
const hooks = await Reprieve({ directory: "/p", worktree: "/p", serverUrl: "", client: { session: { get } } })
for (const sessionID of ["ses_1", "ses_grandchild", "ses_lost"]) {
  await hooks["chat.message"]({ sessionID }, { message: { id: "msg_1" }, parts: [{ type: "text", text: "go" }] })
  const call = { tool: "edit", sessionID, callID: "c" }
  await hooks["tool.execute.before"](call, { args: {} })
  await hooks["tool.execute.after"]({ ...call, args: {} }, { output: "" })
  await hooks.event({ event: { type: "session.idle", properties: { sessionID } } })
}
await hooks.event({ event: { type: "session.deleted", properties: { info: { id: "ses_child" } } } })
console.log("{}")
"""


def play(tmp_path: Path, command: str, *, tool: str = "bash", host: str = HOST) -> dict[str, str | None]:
    machine = Machine(home="/", project="/", platform="linux", variables={}, command=(command,))
    plugin = opencode.plan_install(None, target=Target(path="x"), machine=machine)
    (tmp_path / "reprieve.mjs").write_text(plugin)
    (tmp_path / "host.mjs").write_text(host.replace('"bash"', json.dumps(tool)))
    assert NODE is not None
    run = subprocess.run([NODE, "host.mjs"], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    said: dict[str, str | None] = json.loads(run.stdout)
    return said


def test_the_plugin_reports_a_turn_and_passes_notes_on(tmp_path: Path) -> None:
    hook = StandIn(tmp_path / "bin with blank")
    hook.answer({"prompt": {"note": "3 files were rolled back"}})
    assert play(tmp_path, str(hook.path)) == {"refused": None, "output": "built\n\n3 files were rolled back"}
    calls = hook.calls()
    assert [c["kind"] for c in calls] == ["prompt", "before", "after", "failed", "turn_end"]
    assert {c["session"] for c in calls} == {"ses_1"}
    assert calls[0]["prompt"] == "tidy up"
    assert (calls[1]["tool"], calls[1]["command"], calls[1]["call_id"]) == ("bash", "make", "call_1")
    assert (calls[3]["command"], calls[3]["call_id"]) == ("false", "call_2")
    assert calls[1]["cwd"] == "/home/ada/project"


def test_a_sub_agents_session_counts_as_part_of_the_one_that_a_person_talks_to(tmp_path: Path) -> None:
    hook = StandIn(tmp_path / "bin")
    play(tmp_path, str(hook.path), host=FAMILY)
    assert [(c["kind"], c["session"], c["parent"]) for c in hook.calls()] == [
        *((kind, "ses_1", None) for kind in ("prompt", "before", "after", "turn_end")),
        *((kind, "ses_1", "ses_grandchild") for kind in ("before", "after", "subagent_end")),
        *((kind, "ses_lost", None) for kind in ("prompt", "before", "after", "turn_end")),
        ("subagent_end", "ses_1", "ses_child"),
    ]


def test_a_refusal_stops_the_tool_with_the_reason(tmp_path: Path) -> None:
    hook = StandIn(tmp_path / "bin")
    hook.answer({"before": {"decision": "deny", "reason": "no way back from this"}})
    assert play(tmp_path, str(hook.path)) == {"refused": "no way back from this", "output": None}


GONE, BROKEN, KILLED = "/nonexistent/reprieve", "#!/bin/sh\necho oh\n", "#!/bin/sh\nkill -9 $$\n"


@pytest.mark.parametrize("program", [GONE, BROKEN, KILLED, "#!/bin/sh\necho no disk >&2\nexit 3\n"])
def test_a_command_that_does_not_work_stops_what_may_change_something(program: str, tmp_path: Path) -> None:
    """Only where we are uninstalled the refusal tells how to get rid of the plugin."""
    command = program
    if program != GONE:
        command = str(tmp_path / "reprieve")
        Path(command).write_text(program)
        Path(command).chmod(0o755)
    refused = str(play(tmp_path, command)["refused"])
    assert refused.startswith(
        "Reprieve is not installed any more" if program == GONE else "Blocked by Reprieve: it failed"
    )
    assert ("reprieve unprotect" in refused) is (str(tmp_path / "reprieve.mjs") in refused) is (program == GONE)
    assert "REPRIEVE_DISABLED" not in refused
    assert "no disk" in refused or "no disk" not in program


def test_an_answer_counts_also_from_a_command_that_does_not_read_everything(tmp_path: Path) -> None:
    command = tmp_path / "reprieve"
    command.write_text("#!/bin/sh\nexec <&-\necho '{}'\n")
    command.chmod(0o755)
    assert play(tmp_path, str(command)) == {"refused": None, "output": "built"}


def test_without_us_what_only_reads_goes_on(tmp_path: Path) -> None:
    assert play(tmp_path, GONE, tool="read") == {"refused": None, "output": "built"}


def test_switched_off_the_plugin_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_DISABLED", "1")
    assert play(tmp_path, GONE) == {"refused": None, "output": "built"}
