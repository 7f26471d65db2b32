"""Every tool, in the order in which clients list them."""

from __future__ import annotations

from reprieve.mcp import tools_care, tools_effects, tools_files, tools_mail, tools_threads

TOOLS = (*tools_files.TOOLS, *tools_effects.TOOLS, *tools_mail.TOOLS, *tools_threads.TOOLS, *tools_care.TOOLS)
BY_NAME = {tool.full_name: tool for tool in TOOLS}
