-- A transaction that uses keys holds the lock shared until its events are committed. One that changes them holds it exclusively.
-- Each lock is a separate statement, so that the next statement sees the state after the wait.

-- name: lock_keys
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.keys', 0));

-- name: share_keys
SELECT pg_advisory_xact_lock_shared(hashtextextended('holdfast.keys', 0));

-- name: draw_pos
SELECT nextval('holdfast.event_pos');
