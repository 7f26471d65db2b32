"""docs/agent-instructions.md says what the MCP server teaches, with commands in the place of tools."""

from __future__ import annotations

from pathlib import Path

from reprieve.cli import catalog
from reprieve.mcp.teaching import INSTRUCTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "agent-instructions.md"

# what differs, and nothing else does
SAID = (
    ("call reprieve_checkpoint with a label", "run `reprieve checkpoint LABEL` with a label"),
    ("reprieve_record_http", "`reprieve record http`"),
    ("reprieve_record_reversal", "`reprieve record command`"),
    ("reprieve_mail_stage", "`reprieve mail stage`"),
    (
        "(reprieve_plan_rollback, reprieve_undo, reprieve_revert, reprieve_redo, reprieve_compensate, "
        "reprieve_thread_rollback)",
        "(`rollback`, `undo`, `revert` or `redo` with --dry-run, `compensate`, `thread diff`)",
    ),
    (
        "then reprieve_apply_plan with its id",
        "then run it without --dry-run (`compensate --execute`, `thread rollback`)",
    ),
    ("call the same tool again", "run the same command again"),
)


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_block_is_the_servers_instructions() -> None:
    expected = words(INSTRUCTIONS)
    for tool, command in SAID:
        assert tool in expected, f"the server no longer says '{tool}': change both, and this table"
        expected = expected.replace(tool, command)
    block = PAGE.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert words(block) == expected
    assert "reprieve_" not in block


def test_the_commands_it_names_are_there() -> None:
    for name in (
        "checkpoint",
        "record",
        "mail",
        "rollback",
        "undo",
        "revert",
        "redo",
        "compensate",
        "thread",
        "approve",
    ):
        assert catalog.find(name) is not None
    for name in ("rollback", "undo", "revert", "redo"):
        command = catalog.find(name)
        assert command is not None and any(option.name == "--dry-run" for option in command.options)
