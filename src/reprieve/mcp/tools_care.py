"""Tools about the state of the machine."""

from __future__ import annotations

from reprieve.app.doctor import diagnose
from reprieve.app.render import finding_json
from reprieve.mcp import schemas as s
from reprieve.mcp.tool import Call, Json, Tool
from reprieve.version import VERSION


def _doctor(call: Call) -> Json:
    findings = diagnose(call.desk.start, call.reporter)
    return {"version": VERSION, "findings": [finding_json(finding) for finding in findings]}


TOOLS = (
    Tool(
        "doctor", "See whether all is well",
        "Whether the folder is protected, and what is wrong on this machine. It looks and never repairs.",
        _doctor, s.takes(), s.gives("version", "findings", version=s.S, findings=s.listed(s.FINDING)),
        reads=True, repeats=True, has_foreign_text=True,
    ),
)  # fmt: skip
