"""The verb that says whether a job's holder may go on."""

from holdfast.core.lifecycle import holder_of
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import Fence, Micros
from holdfast.core.model import Job as Record
from holdfast.core.receipts import check_gate, receipt_of
from holdfast.errors import NotFound
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk, JobOrFence
from holdfast.store.base import Session


class Gate(Desk):
    def gate(self, job: JobOrFence) -> LivenessHeartbeatReceiptV1:
        """The receipt of whoever holds the job, if it is healthy, fresh and within its attempts; GateDenied otherwise.

        Asked with a fence, it is FenceLost unless that is the fence of the newest attempt. It changes nothing.
        """
        fence = admit.fence(job) if isinstance(job, Fence) else None
        job_id = admit.job_id(job) if fence is None else fence.job_id

        def work(session: Session) -> tuple[Record | None, Micros]:
            return session.load([job_id], lock=False).get(job_id), session.now()

        found, now = self._store.read(work)
        if found is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        if fence is not None:
            holder_of(found, fence)
        return check_gate(found, receipt_of(found, now), now)
