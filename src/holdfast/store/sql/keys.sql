-- Keys.

-- name: key_log
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast.key_log ORDER BY pos;

-- name: last_key_change
SELECT coalesce(max(pos), 0) FROM holdfast.key_log;

-- name: add_key_change
INSERT INTO holdfast.key_log (pos, change, key_id, role, name, public, at, by, signer, signature)
VALUES (:pos, :change, :key_id, :role, :name, :public, :at, :by, :signer, :signature);
