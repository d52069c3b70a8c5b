-- name: key_log
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast.key_log ORDER BY pos;

-- A transaction that uses keys holds the lock shared until its events are committed. One that changes them holds it exclusively.
-- Each lock is a separate statement, so that the next statement sees the state after the wait.

-- name: lock_keys
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.keys', 0));

-- name: share_keys
SELECT pg_advisory_xact_lock_shared(hashtextextended('holdfast.keys', 0));

-- name: keys_stand
SELECT coalesce(max(pos), 0) FROM holdfast.key_log;

-- name: draw_pos
SELECT nextval('holdfast.event_pos');

-- name: add_key_change
INSERT INTO holdfast.key_log (pos, change, key_id, role, name, public, at, by, signer, signature)
VALUES (%(pos)s, %(change)s, %(key_id)s, %(role)s, %(name)s, %(public)s, %(at)s, %(by)s, %(signer)s, %(signature)s);
