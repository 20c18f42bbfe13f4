-- When the request came that a message was accepted with, if that is still remembered.
-- $1 id uuid.
SELECT to_json(r.created_at) #>> '{}' AS accepted_at FROM outbox.requests r WHERE r.id = $1 ORDER BY r.id LIMIT 1
