-- Dedupe keys: who has one, and how it passes from one job to another.

-- Whether the job `j` has ended and its key is no longer kept.

-- part: has_free_key
(j.finished_at IS NOT NULL AND NOT j.dedupe_forever AND j.key_until <= {now});

-- name: find_key
SELECT j.id, j.created_at, {has_free_key} AS is_free FROM holdfast.jobs j
WHERE j.queue = :queue AND j.live_key = :key AND j.live_key IS NOT NULL;

-- name: free_key
UPDATE holdfast.jobs AS j SET live_key = NULL
WHERE j.queue = :queue AND j.live_key = :key AND j.live_key IS NOT NULL AND {has_free_key};

-- name: take_key
UPDATE holdfast.jobs SET live_key = NULL WHERE id = :id;

-- name: has_key
SELECT live_key IS NOT NULL FROM holdfast.jobs WHERE id = :id;

-- name: last_postponed
SELECT received_at, payload FROM holdfast.event_rows WHERE job_id = :id AND type = 'postponed' ORDER BY rev DESC LIMIT 1;

-- name: payload_of
SELECT payload FROM holdfast.jobs WHERE id = :id;

-- name: set_payload
UPDATE holdfast.jobs SET first_payload = coalesce(first_payload, payload), payload = :payload, profile_id = :profile_id
WHERE id = :id;
