"""The client configuration in the guide is JSON, and starts a server."""

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
from tests.docs.pages import blocks

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
