"""The MCP server: an agent's verbs for clients of the Model Context Protocol. Needs the extra `mcp`."""
