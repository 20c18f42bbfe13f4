-- Makes this relay known.
-- $1 name text, $2 version text, $3 config digest text, $4 lease time in seconds.
SELECT r.relay, r.session, r.epoch FROM outbox.register($1, $2, $3, $4) r
