"""Two threads of one process send the same request id, the first of them in its own open transaction.

`python -m tests.blast.programs.same_request URL` prints the outcome of each call as JSON when all have returned.
"""

import json
import sys
import threading
import time

import psycopg

import holdfast
from holdfast import HoldfastError, Ledger
from tests.blast.place import Place


def outcome(ledger: Ledger, **given: object) -> str:
    try:
        return f"job {ledger.enqueue('quick', queue='requests', **given).id}"  # type: ignore[arg-type]
    except HoldfastError as error:
        return error.code


if __name__ == "__main__":
    url = sys.argv[1]
    place, said = Place.of(url), {}
    with holdfast.open(url) as ledger, psycopg.connect(place.server) as connection, psycopg.connect(place.server) as admin:
        admin.autocommit = True
        said["in a transaction"] = outcome(ledger, request_id="R", connection=connection)
        repeating = threading.Thread(target=lambda: said.update(repeated=outcome(ledger, request_id="R")), daemon=True)
        repeating.start()
        mine = connection.info.backend_pid
        # The other thread waits for this transaction, or was refused.
        while (
            repeating.is_alive()
            and not admin.execute("SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", [mine]).fetchone()
        ):
            time.sleep(0.01)
        said["plain"] = outcome(ledger)
        connection.commit()
        repeating.join()
        said["afterwards"] = outcome(ledger, request_id="R")
    sys.stdout.write(json.dumps(said) + "\n")
