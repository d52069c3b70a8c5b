"""`holdfast gate`: a script can check the gate before its next step."""

import json

from holdfast import Ledger
from holdfast.liveness import LivenessHeartbeatReceiptV1
from tests.cli.conftest import Run
from tests.contract.builders import queued, running, running_stalled


def test_a_live_holder_may_proceed(real: Ledger, store_url: str, run: Run) -> None:
    made = running(real)
    said = run("gate", made.id, "--db", store_url)
    assert (said.code, said.out.splitlines()[0]) == (0, f"Job {made.id} may proceed: w-1 is healthy.")
    answer = run("gate", made.id, "--db", store_url, "--json").answer
    assert answer["success"] and answer["data"]["job_id"] == made.id
    assert LivenessHeartbeatReceiptV1.from_json(json.dumps(answer["data"]["receipt"])) == real.gate(made.fence)


def test_another_worker_may_not_proceed(real: Ledger, store_url: str, run: Run) -> None:
    waiting, silent = queued(real), running_stalled(real)
    said = run("gate", waiting.id, "--db", store_url)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[0] == f"Failed: gate_denied: job {waiting.id} may not proceed: no worker holds it, it is queued"
    done = run("gate", silent.id, "--db", store_url, "--json")
    assert (done.code, done.answer["error_code"]) == (1, "gate_denied")
    assert done.answer["error_context"]["reason"] == "unhealthy_verdict"
    assert done.answer["error_context"]["receipt"]["health_verdict"] == "crashed"


def test_an_unknown_job_is_not_found(real: Ledger, store_url: str, run: Run) -> None:
    assert run("gate", 7, "--db", store_url, "--json").answer["error_code"] == "not_found"
    done = run("gate", "x", "--db", store_url)
    assert done.code == 2
    assert done.err.splitlines()[-1] == "Error: Invalid value for 'JOB': 'x' is not a valid job id, a whole number"
