"""Seal until it is killed, and print the sealed size: `python -m tests.integration.programs.sealing URL KEY`."""

import sys
from pathlib import Path

import holdfast
from holdfast.services import sealer
from holdfast.services.sealer import Sealer
from tests.support.duties import GrantEveryDuty

if __name__ == "__main__":
    # Small steps, so that a kill comes in the middle of one.
    sealer.PAGE_EVENTS = sealer.HEAD_EVENTS_MAX = 50
    with holdfast.open(sys.argv[1], keys=[Path(sys.argv[2])]) as ledger:
        service = Sealer(ledger, duties=GrantEveryDuty())
        while done := service.tick():
            sys.stdout.write(f"{done.size}\n")
            sys.stdout.flush()
