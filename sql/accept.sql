-- Inserts a message that was sent over HTTP: see functions/accept.sql.
-- $1 caller, $2 its key or NULL, $3 digest of the request, $4 topic, $5 key, $6 type, $7 payload text, $8 body, $9 content type,
-- $10 headers, $11 due in seconds, $12 due at text, $13 expires at text.
SELECT a.id, a.repeated
  FROM outbox.accept($1, $2, $3, $4, $5, $6, $7::json, $8, $9, $10, $11, $12::timestamptz, $13::timestamptz) a
