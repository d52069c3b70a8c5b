"""The client configurations in the guide are JSON, and start or reach a server."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from docs.generate import ROOT
from holdfast.cli import main
from holdfast.mcp.app import PATH
from tests.docs.pages import blocks
from tests.mcp.conftest import Served

GUIDE = ROOT / "docs/guides/mcp.md"
LEDGER = "sqlite:////srv/holdfast.db"


def test_the_configuration_starts_a_server_on_the_ledger_of_the_guide(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    server = json.loads(blocks(GUIDE, "json")[0].text)["mcpServers"]["holdfast"]
    assert Path(server["command"]).is_absolute() and Path(server["command"]).name == "holdfast"
    assert LEDGER in server["args"]
    arguments = [argument.replace(LEDGER, url) for argument in server["args"]]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), shlex.join(arguments) + done.stderr
    found = re.search(r"`holdfast (job enqueue .*?)`", GUIDE.read_text())
    assert found is not None
    with pytest.raises(SystemExit) as ended:
        main([word.replace(LEDGER, url) for word in shlex.split(found[1])])
    assert ended.value.code == 0
    with holdfast.open(url) as ledger:
        assert ledger.get(1).args == {"page": 7}


def test_the_server_accepts_the_token_of_the_guide(tmp_path: Path) -> None:
    [block] = blocks(GUIDE, "bash")
    subprocess.run(["/bin/sh", "-c", block.text], cwd=tmp_path, check=True)
    served = Served(f"sqlite:///{tmp_path}/holdfast.db", "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    served.close()
    reached = json.loads(blocks(GUIDE, "json")[1].text)["mcpServers"]["holdfast"]
    assert reached["type"] == "http" and reached["url"].endswith(PATH) and served.url.endswith(PATH)
    assert reached["headers"]["Authorization"].startswith("Bearer ")
