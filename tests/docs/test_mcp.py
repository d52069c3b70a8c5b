"""What the guide gives to clients as their configuration is JSON, and starts a server."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from docs.generate import ROOT
from tests.docs.pages import blocks


def test_the_configuration_starts_a_server(tmp_path: Path) -> None:
    [block] = blocks(ROOT / "docs/guides/mcp.md", "json")
    server = json.loads(block.text)["mcpServers"]["holdfast"]
    assert server["command"] == "holdfast"
    arguments = [argument.replace("/path/", f"{tmp_path}/") for argument in server["args"]]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), shlex.join(arguments) + done.stderr
    assert (tmp_path / "holdfast.db").exists()
