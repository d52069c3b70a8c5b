-- name: key_log
SELECT pos, change, key_id, role, name, public, at, by, signer, signature FROM holdfast_key_log ORDER BY pos;

-- name: keys_stand
SELECT coalesce(max(pos), 0) FROM holdfast_key_log;

-- name: add_key_change
INSERT INTO holdfast_key_log (pos, change, key_id, role, name, public, at, by, signer, signature)
VALUES (:pos, :change, :key_id, :role, :name, :public, :at, :by, :signer, :signature);
