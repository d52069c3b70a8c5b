-- Settings, declarations of handlers, and the policies that follow from them.

-- name: policies
SELECT id, body FROM holdfast.policies;

-- name: find_policy
SELECT id FROM holdfast.policies WHERE body = :body;

-- name: settings
SELECT scope, name, body FROM holdfast.settings
WHERE (scope = 'kind' AND name = :kind) OR (scope = 'tier' AND name = :tier)
UNION ALL SELECT 'handler', kind, body FROM holdfast.declarations WHERE kind = :kind;

-- name: upsert_settings
INSERT INTO holdfast.settings (scope, name, body) VALUES (:scope, :name, :body)
ON CONFLICT (scope, name) DO UPDATE SET body = excluded.body;

-- name: drop_settings
DELETE FROM holdfast.settings WHERE scope = :scope AND name = :name;

-- name: all_settings
SELECT scope, name, body FROM holdfast.settings ORDER BY scope, name;

-- name: upsert_declaration
INSERT INTO holdfast.declarations (kind, queue, body, flow, declared_at, declared_by)
VALUES (:kind, :queue, :body, :flow, :declared_at, :declared_by)
ON CONFLICT (kind) DO UPDATE
SET queue = excluded.queue, body = excluded.body, flow = excluded.flow,
    declared_at = excluded.declared_at, declared_by = excluded.declared_by;

-- name: drop_declaration
DELETE FROM holdfast.declarations WHERE kind = :kind;

-- name: declarations
SELECT kind, queue, body, flow, declared_at, declared_by FROM holdfast.declarations ORDER BY kind;

-- name: find_profile
SELECT id, policy_id FROM holdfast.profiles WHERE kind = :kind AND tier = :tier AND override = :override;

-- name: insert_profile
INSERT INTO holdfast.profiles (kind, tier, override, policy_id)
VALUES (:kind, :tier, :override, :policy_id) RETURNING id;

-- name: profiles_of_kind
SELECT id, kind, tier, override FROM holdfast.profiles WHERE kind = :name;

-- name: profiles_of_tier
SELECT id, kind, tier, override FROM holdfast.profiles WHERE tier = :name;

-- name: update_profile
UPDATE holdfast.profiles SET policy_id = :policy_id WHERE id = :id;
