-- Parts of statements of both stores. See the file of this name of each store for those that they write differently.

-- The columns of a job, in the order in which `build_job` takes them.

-- part: job_columns
j.id, j.queue, j.kind, j.status, j.rev, j.attempt, j.priority, j.available_at, j.created_at, j.updated_at, j.phase,
j.releases, j.owner, j.incarnation, j.claimed_at, j.lease_expires_at, j.last_beat_at, j.started_at, j.finished_at,
j.stage, j.progress, j.progressed_at, j.assist_requested, j.counter, j.last_owner, j.last_lease_expires_at, j.last_error,
j.stall_reason, j.stalled_at, j.revived_at, j.cancel_reason, j.cancel_requested_at, j.reason_code, j.failure_stage,
j.undo_owed, j.note, j.dedupe_key, j.dedupe_forever, j.correlation_id, j.trace_id, j.token, j.policy_id, j.payload, j.result;

-- The columns of an event `e` of the view, and the same of an event `e` that is a row, with its job `j`.

-- part: event_columns
e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
e.request_id, e.cause, e.payload, e.policy_id, e.correlation_id, e.trace_id, e.key_id, e.signature, e.statement;

-- part: event_row_columns
e.pos, e.job_id, e.rev, e.type, e.received_at, e.at, e.actor, e.attempt, e.from_status, e.to_status, e.reason,
e.request_id, e.cause, e.payload, e.policy_id, j.correlation_id, j.trace_id, e.key_id, e.signature, e.statement;

-- Whether a failed or dead-lettered job `j` is left: an operator has not discarded it.

-- part: not_discarded
(j.note IS NULL OR NOT EXISTS (SELECT 1 FROM holdfast.event_rows e WHERE e.job_id = j.id AND e.type = 'discarded'));

-- The deadlines of a job `j` with the policy `p` of {policy_times}.

-- part: beat_deadline
j.last_beat_at + p.stall_after;

-- part: progress_deadline
j.progressed_at + p.progress_timeout;

-- part: resume_deadline
j.stalled_at + p.resume_window;

-- part: cancel_deadline
j.cancel_requested_at + p.cancel_grace;

-- Whether a sweep may have something to do for a held or stalled job `j` with the policy `p`. `decide` makes the final decision.

-- part: is_due
CASE j.status
    WHEN 'stalled' THEN (j.revived_at IS NOT NULL AND j.started_at IS NOT NULL)
        OR {resume_deadline} <= {job_now}
        OR (j.phase = 'aborting' AND {cancel_deadline} < {job_now})
    ELSE j.lease_expires_at < {job_now}
        OR {beat_deadline} < {job_now}
        OR (j.status = 'running' AND {progress_deadline} < {job_now})
        OR (j.phase = 'aborting' AND {cancel_deadline} < {job_now})
END;

-- The time that a search by time compares.

-- part: searched_time
CASE CAST(:time AS text) WHEN 'updated' THEN j.updated_at WHEN 'finished' THEN j.finished_at ELSE j.created_at END;
