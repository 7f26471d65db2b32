"""opencode: a plugin file of our own that calls us with what it sees; refusing is throwing.

The plugin speaks a small language of its own with us, so both sides of it are in this file. opencode has no way for a
plugin to ask. Notes are appended to the output of the next tool.
"""

from __future__ import annotations

from reprieve.agents.reading import Tools, call, inner, say, text
from reprieve.model.hookevent import (
    AFTER,
    ALLOW,
    BEFORE,
    FAILED,
    OTHER,
    PROMPT,
    SESSION_END,
    SESSION_START,
    SUBAGENT_END,
    TURN_END,
    Answer,
    HookEvent,
    Reply,
    reason_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.agents.machine import Machine, Target

NAME = "opencode"
TITLE = "opencode"
SCOPES = ("user", "project")

KINDS = {
    "prompt": PROMPT,
    "before": BEFORE,
    "after": AFTER,
    "failed": FAILED,
    "session.idle": TURN_END,
    "session.error": TURN_END,
    "session.created": SESSION_START,
    "session.deleted": SESSION_END,
}
TOOLS = Tools(
    read_only=frozenset((
        "read", "glob", "grep", "list", "webfetch", "websearch", "codesearch", "todoread", "todowrite", "question",
        "lsp", "skill", "plan_enter", "plan_exit",
    )),
    shells=frozenset(("bash", "shell")),
)  # fmt: skip

_PLUGIN = """\
// Undo for AI agents: calls Reprieve before and after every tool. Remove with: reprieve unprotect opencode
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"

const COMMAND = %s
const READS = new Set(%s)
const GONE = "ENOENT"

// The command could not answer, so this does.
function refuse(tool, why) {
  if (READS.has(tool) || process.env.REPRIEVE_DISABLED === "1") return
  const plugin = fileURLToPath(import.meta.url)
  if (why === GONE)
    throw new Error(
      `Reprieve is not installed any more, but its plugin is still in ${plugin}. ` +
        "Delete that file and restart opencode, or reinstall Reprieve and run: reprieve unprotect opencode",
    )
  if (String(why).startsWith("Blocked by Reprieve")) throw new Error(why)
  throw new Error(
    `Blocked by Reprieve: it failed (${why}). Nothing ran. ` +
      "Ask the user to run `reprieve doctor` in their own terminal.",
  )
}

function call(event, data) {
  const run = spawnSync(COMMAND[0], [...COMMAND.slice(1), "hook", "opencode", event], {
    input: JSON.stringify(data),
    encoding: "utf8",
    timeout: 60000,
  })
  if (run.error?.code === GONE) return { failed: GONE }
  // not run.error: a command that answers before it has read everything is one, too (EPIPE)
  if (run.status !== 0) return { failed: run.stderr?.trim() || run.error?.message || run.signal || run.status }
  try {
    return JSON.parse(run.stdout || "{}")
  } catch (error) {
    return { failed: String(error) }
  }
}

export const Reprieve = async ({ client, directory, worktree, serverUrl }) => {
  const where = { directory, worktree, serverUrl: String(serverUrl ?? "") }
  const parents = new Map()
  // A sub-agent works in a session of its own; it counts as part of the one that a person talks to.
  const rootOf = async (session) => {
    for (let depth = 0; session && depth < 20; depth++) {
      if (!parents.has(session)) {
        // one that can't be looked up stays on its own, from its first event to its last
        try {
          parents.set(session, (await client.session.get({ path: { id: session } })).data?.parentID)
        } catch {
          parents.set(session, undefined)
        }
      }
      if (!parents.get(session)) break
      session = parents.get(session)
    }
    return session
  }
  const pending = new Map()
  const hold = (session, note) => note && pending.set(session, note)
  return {
    "chat.message": async (input, output) => {
      if ((await rootOf(input.sessionID)) !== input.sessionID) return // nobody said this but another agent
      const parts = (output?.parts ?? []).filter((p) => p.type === "text" && !p.synthetic)
      const prompt = parts.map((p) => p.text).join("\\n")
      const said = call("prompt", { ...where, sessionID: input.sessionID, messageID: output?.message?.id, prompt })
      hold(input.sessionID, said.note)
    },
    "tool.execute.before": async (input, output) => {
      const said = call("before", { ...where, ...input, rootID: await rootOf(input.sessionID), args: output.args })
      hold(input.sessionID, said.note)
      if (said.failed) refuse(input.tool, said.failed)
      if (said.deny) throw new Error(said.reason)
    },
    "tool.execute.after": async (input, output) => {
      const said = call("after", { ...where, ...input, rootID: await rootOf(input.sessionID), args: input.args })
      hold(input.sessionID, said.note)
      const note = pending.get(input.sessionID)
      if (note && typeof output?.output === "string") {
        output.output += "\\n\\n" + note
        pending.delete(input.sessionID)
      }
    },
    event: async ({ event }) => {
      // opencode runs no "after" for a call that failed; the message that it is part of says so
      const part = event.type === "message.part.updated" ? event.properties?.part : undefined
      if (part?.type === "tool" && part.state?.status === "error") {
        const { sessionID, callID, tool, state } = part
        const [rootID, error] = [await rootOf(sessionID), String(state.error ?? "")]
        call("failed", { ...where, sessionID, rootID, callID, tool, args: state.input, error })
      }
      if (event.type === "session.idle" || event.type === "session.error" || event.type === "session.deleted") {
        const sessionID = event.properties?.sessionID ?? event.properties?.info?.id
        call(event.type, { ...where, ...event, rootID: await rootOf(sessionID) })
      }
    },
  }
}
"""


def read(payload: Mapping[str, object], event: str | None = None) -> HookEvent:
    raw_event = event or text(payload, "type") or ""
    if raw_event not in KINDS:
        raw_event = text(payload, "type") or raw_event
    properties = inner(payload, "properties")
    kind = KINDS.get(raw_event, OTHER)
    info = inner(properties, "info")
    session = text(payload, "sessionID") or text(properties, "sessionID") or text(info, "id")
    root = text(payload, "rootID") or session
    if root != session and kind in (TURN_END, SESSION_END):
        kind = SUBAGENT_END
    found = call(
        NAME,
        kind,
        payload,
        tools=TOOLS,
        tool=text(payload, "tool"),
        arguments=inner(payload, "args"),
        session=root,
        cwd=text(payload, "directory", "worktree"),
        raw_event=raw_event,
        call_id=text(payload, "callID"),
        message_id=text(payload, "messageID"),
        parent=session if root != session else None,
        error=text(payload, "error") if kind == FAILED else None,
    )
    # Its conversation is to be had from its server. It counts turns by the user's message.
    found = found.replace(transcript_path=text(payload, "serverUrl"))
    return found.replace(turn=found.message_id) if kind == PROMPT else found


def answer(event: HookEvent, answer: Answer) -> Reply:
    output: dict[str, object] = {}
    if event.kind == BEFORE and answer.decision != ALLOW:
        output = {"deny": True, "reason": reason_of(answer, cannot_ask=True)}
    if answer.note and carries_note(event):
        output["note"] = answer.note
    return say(output)


def carries_note(event: HookEvent) -> bool:
    return event.kind in (PROMPT, BEFORE, AFTER)


def detect(machine: Machine) -> bool:
    import os

    return machine.has_program("opencode") or machine.has_folder(os.path.join(machine.config_home(), "opencode"))


def targets(machine: Machine, scope: str) -> Sequence[Target]:
    import os

    from reprieve.agents.machine import Target

    folder = os.path.join(machine.config_home(), "opencode") if scope == "user" else machine.in_project(".opencode")
    return (Target(path=os.path.join(folder, "plugins", "reprieve.js"), is_own=True, scope=scope),)


def plan_install(text: str | None, *, target: Target, machine: Machine) -> str:
    import json

    from reprieve.agents.ownfile import replace_own

    values = (json.dumps(list(machine.command)), json.dumps(sorted(TOOLS.read_only)))
    return replace_own(text, _PLUGIN % values, name=target.path)


def plan_remove(text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
    from reprieve.agents.ownfile import remove_own

    return remove_own(text)


def left_to_do(machine: Machine, scope: str) -> Sequence[str]:
    return ("opencode: restart it, it loads plugins only when it starts",)
