-- Flow control: limits, subqueues and the settings of queues. Lists of rows differ between the stores, and so do locks.

-- name: queue_settings
SELECT settings FROM holdfast.queues WHERE name = :queue;

-- name: flow_queue
SELECT paused_at, settings, has_flow FROM holdfast.queues WHERE name = :queue;

-- name: set_queue
INSERT INTO holdfast.queues (name, settings) VALUES (:queue, :settings)
ON CONFLICT (name) DO UPDATE SET settings = excluded.settings;

-- name: mark_flow_queue
INSERT INTO holdfast.queues (name, has_flow) VALUES (:queue, true)
ON CONFLICT (name) DO UPDATE SET has_flow = true WHERE NOT holdfast.queues.has_flow;

-- name: all_queue_settings
SELECT name AS queue, settings FROM holdfast.queues WHERE settings IS NOT NULL ORDER BY name;

-- name: all_flow_queues
SELECT q.name FROM holdfast.queues q WHERE q.has_flow AND q.paused_at IS NULL AND {is_queue_wanted}
ORDER BY NOT EXISTS (SELECT 1 FROM holdfast.subqueues s WHERE s.queue = q.name AND s.is_open), q.name LIMIT :limit;

-- Limits.

-- name: put_limit
INSERT INTO holdfast.limits (name, body, updated_at, updated_by) VALUES (:name, :body, :changed_at, :changed_by)
ON CONFLICT (name) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at, updated_by = excluded.updated_by;

-- name: drop_limit
DELETE FROM holdfast.limits WHERE name = :name RETURNING 1;

-- name: limit_body
SELECT body FROM holdfast.limits WHERE name = :name;

-- name: limits
SELECT name, body, updated_at, updated_by FROM holdfast.limits WHERE name > :after ORDER BY name LIMIT :limit;

-- name: count_limits
SELECT count(*) FROM holdfast.limits;

-- Keys with numbers of their own, and keys of a limit by what they use.

-- name: put_limit_key
INSERT INTO holdfast.limit_keys (name, key, body) VALUES (:name, :key, :body)
ON CONFLICT (name, key) DO UPDATE SET body = excluded.body;

-- name: limit_keys
SELECT id, key, body, used, tokens, filled_at FROM holdfast.limit_keys
WHERE name = :name AND (CAST(:after AS text) IS NULL OR key > CAST(:after AS text)) ORDER BY key LIMIT :limit;

-- name: limit_key
SELECT id, key, body, used, tokens, filled_at FROM holdfast.limit_keys WHERE name = :name AND key = :key;

-- name: open_subqueues_of_limit
UPDATE holdfast.subqueues SET is_open = true, shut_key = NULL, until = NULL
WHERE shut_key IN (SELECT id FROM holdfast.limit_keys WHERE name = :name);

-- Subqueues.

-- name: draws
SELECT id, draws FROM holdfast.subqueues WHERE id {in_ids};

-- name: leave_line
UPDATE holdfast.subqueues SET shut_at = NULL WHERE id {in_ids};

-- name: ready_subqueues
SELECT s.id FROM holdfast.subqueues s
WHERE s.id {in_ids} AND EXISTS (
    SELECT 1 FROM holdfast.jobs j WHERE {job_of_subqueue} AND j.available_at <= coalesce(:before_at, {now}));

-- name: forget_subqueues
DELETE FROM holdfast.subqueues WHERE id IN (
    SELECT s.id FROM holdfast.subqueues s
    WHERE s.seen_at < :before_at AND NOT s.is_open AND s.shut_key IS NULL
      AND NOT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE {job_of_subqueue})
    ORDER BY s.seen_at LIMIT :limit {skip_locked})
RETURNING 1;

-- Those that no claim has looked at since their last job was cancelled or moved. This reads all subqueues.

-- name: forget_open_subqueues
DELETE FROM holdfast.subqueues WHERE id IN (
    SELECT s.id FROM holdfast.subqueues s
    WHERE s.seen_at < :before_at AND (s.is_open OR s.shut_key IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE {job_of_subqueue})
    LIMIT :limit {skip_locked})
RETURNING 1;

-- What no subqueue uses any more. Names are made and forgotten under a lock, so that none is forgotten that is about to be used.

-- name: unmark_flow_queues
UPDATE holdfast.queues SET has_flow = false
WHERE has_flow AND name NOT IN (SELECT queue FROM holdfast.subqueues);

-- name: forget_routes
DELETE FROM holdfast.routes WHERE id IN (
    SELECT id FROM holdfast.routes WHERE id NOT IN (SELECT route FROM holdfast.subqueues) LIMIT :limit)
RETURNING 1;

-- name: idle_limit_keys
SELECT k.id FROM holdfast.limit_keys k
WHERE k.body IS NULL AND k.id NOT IN ({drawn_keys}) AND NOT EXISTS (SELECT 1 FROM holdfast.slots s WHERE s.key_id = k.id)
ORDER BY k.filled_at LIMIT :limit;

-- name: forget_limit_keys
DELETE FROM holdfast.limit_keys WHERE body IS NULL AND id {in_ids};

-- Subqueues that were closed because of a limit before the clock was set back. Their time may be far away.

-- name: open_stepped_subqueues
UPDATE holdfast.subqueues SET is_open = true, shut_key = NULL, shut_at = NULL, until = NULL WHERE shut_at > {now};

-- Names of limits that jobs have drawn on, and that were removed.

-- name: removed_limits
WITH RECURSIVE named (name) AS (
    SELECT min(name) FROM holdfast.limit_keys
    UNION ALL
    SELECT (SELECT min(k.name) FROM holdfast.limit_keys k WHERE k.name > named.name) FROM named WHERE named.name IS NOT NULL
)
SELECT name FROM named
WHERE name IS NOT NULL AND NOT EXISTS (SELECT 1 FROM holdfast.limits l WHERE l.name = named.name) LIMIT :limit;

-- name: drawing_subqueues
SELECT id, draws FROM holdfast.subqueues WHERE id > 0 ORDER BY id DESC LIMIT :limit;
