-- Answers to requests.

-- name: keep_request
INSERT INTO holdfast.requests (actor, request_id, verb, body_hash, answer, created_at)
VALUES (:actor, :request_id, :verb, :body_hash, :answer, {now});
