-- Deletion of old sessions and login codes.

-- name: prune_sessions
DELETE FROM holdfast.sessions WHERE hash IN (
    SELECT hash FROM holdfast.sessions WHERE expires_at < %(before_at)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: prune_login_codes
DELETE FROM holdfast.login_codes WHERE hash IN (
    SELECT hash FROM holdfast.login_codes WHERE expires_at < %(before_at)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1;
