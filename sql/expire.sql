-- Gives up messages of one lane whose time is over: see functions/expire.sql.
-- $1 relay uuid, $2 topic, $3 lane endpoint, $4 endpoint, $5 hold, $6 ids uuid[], $7 relay name.
SELECT e.dead, e.keys, e.history_error FROM outbox.expire($1, $2, $3, $4, $5, $6, $7) e
