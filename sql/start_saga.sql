-- Starts a saga over HTTP: see functions/start_saga.sql.
-- $1 caller, $2 its request's key or NULL, $3 digest of the request, $4 name, $5 key, $6 input text, $7 steps, $8 headers, $9 deadline in
-- seconds, $10 deadline at text.
SELECT outbox.start_saga($1, $2, $3, $4, $5, $6::text::json, $7, $8, $9, $10::text::timestamptz) AS id
