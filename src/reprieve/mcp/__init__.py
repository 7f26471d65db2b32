"""The MCP server, a front end for agents. It decides nothing: a tool calls the use case that the command line calls."""
