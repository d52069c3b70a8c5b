"""The MCP server: an agent's verbs for whatever speaks the Model Context Protocol. Needs the extra `mcp`."""
