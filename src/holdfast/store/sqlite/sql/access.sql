-- Deletion of old sessions and login codes.

-- name: prune_sessions
DELETE FROM holdfast_sessions WHERE hash IN (SELECT hash FROM holdfast_sessions WHERE expires_at < :before_at LIMIT :limit)
RETURNING 1;

-- name: prune_login_codes
DELETE FROM holdfast_login_codes WHERE hash IN (SELECT hash FROM holdfast_login_codes WHERE expires_at < :before_at LIMIT :limit)
RETURNING 1;
