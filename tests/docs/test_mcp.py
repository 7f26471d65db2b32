"""docs/mcp.md names every tool with its arguments, every resource and prompt."""

from __future__ import annotations

from pathlib import Path

from reprieve.mcp.catalog import TOOLS
from reprieve.mcp.resources import TEMPLATES
from reprieve.mcp.teaching import INSTRUCTIONS, prompts

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mcp.md").read_text()


def test_every_tool_is_documented_with_its_arguments() -> None:
    for tool in TOOLS:
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{tool.full_name}` |")]
        for name in tool.takes["properties"]:
            assert f"`{name}`" in row, (tool.name, name)
        assert row.endswith("| reads |") == tool.reads
        assert row.endswith("| destructive |") == tool.destroys


def test_every_resource_and_prompt_is_documented() -> None:
    for template in TEMPLATES:
        assert f"`{template.uri_template}`" in PAGE
    for prompt in prompts():
        assert f"`{prompt.name}`" in PAGE


def test_the_instructions_name_only_tools_that_exist() -> None:
    words = {word.strip("(),.:;") for word in INSTRUCTIONS.split() if "reprieve_" in word}
    assert {word.lstrip("(") for word in words} <= {tool.full_name for tool in TOOLS}
    assert "reprieve_checkpoint" in words
