-- Why a message is not delivered: $1 id uuid. Returns endpoint, state and why, for each endpoint. See functions/why.sql.
SELECT w.endpoint, w.state, w.why FROM outbox.why($1) w
