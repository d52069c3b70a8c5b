-- Tokens, browser sessions and login codes.

-- part: token_columns
id, hash, role, name, queues, act_as, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by;

-- name: add_token
INSERT INTO holdfast.tokens (id, hash, role, name, queues, act_as, created_at, created_by, expires_at)
VALUES (:id, :hash, :role, :name, :queues, :act_as, :created_at, :created_by, :expires_at);

-- name: find_token
SELECT {token_columns}, {now} AS now FROM holdfast.tokens WHERE id = :id;

-- name: tokens
SELECT {token_columns}, {now} AS now FROM holdfast.tokens WHERE id > :after ORDER BY id LIMIT :limit;

-- The token that the server itself has made and that is still valid.

-- name: generated_token
SELECT id FROM holdfast.tokens
WHERE created_by = :created_by AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
ORDER BY created_at, id LIMIT 1;

-- name: has_tokens
SELECT EXISTS (
    SELECT 1 FROM holdfast.tokens
    WHERE created_by <> :created_by AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}));

-- The first revocation stays.

-- name: revoke_token
UPDATE holdfast.tokens SET revoked_at = coalesce(revoked_at, {now}), revoked_by = coalesce(revoked_by, :revoked_by)
WHERE id = :id
RETURNING {token_columns}, {now} AS now;

-- name: touch_token
UPDATE holdfast.tokens SET last_used_at = :used_at
WHERE id = :id AND (last_used_at IS NULL OR last_used_at <= :due_at);

-- name: add_session
INSERT INTO holdfast.sessions (hash, token_id, role, name, queues, act_as, created_at, seen_at, expires_at)
VALUES (:hash, :token_id, :role, :name, :queues, :act_as, :created_at, :created_at, :expires_at);

-- The sessions of the same token or, without a token, of the same person, except the :limit that were used last.

-- name: end_old_sessions
DELETE FROM holdfast.sessions WHERE hash IN (
    SELECT hash FROM holdfast.sessions
    WHERE name = :name AND coalesce(token_id, '') = coalesce(CAST(:token_id AS text), '')
    ORDER BY seen_at DESC, hash LIMIT 1000 OFFSET :limit);

-- name: find_session
SELECT s.token_id, s.role, s.name, s.queues, s.act_as, s.created_at, s.seen_at, s.expires_at,
    t.revoked_at, t.expires_at AS token_expires_at, {now} AS now
FROM holdfast.sessions s LEFT JOIN holdfast.tokens t ON t.id = s.token_id
WHERE s.hash = :hash;

-- name: touch_session
UPDATE holdfast.sessions SET seen_at = :seen_at, expires_at = :expires_at WHERE hash = :hash AND seen_at < :seen_at;

-- name: end_session
DELETE FROM holdfast.sessions WHERE hash = :hash;

-- name: add_login_code
INSERT INTO holdfast.login_codes (hash, token_id, expires_at) VALUES (:hash, :token_id, :expires_at);

-- name: take_login_code
DELETE FROM holdfast.login_codes WHERE hash = :hash RETURNING token_id, expires_at;
