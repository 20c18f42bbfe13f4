-- Gives up messages of one lane whose time is over: see functions/expire.sql.
-- $1 topic, $2 lane endpoint, $3 endpoint, $4 hold, $5 ids uuid[], $6 relay name.
SELECT e.dead, e.keys, e.history_error FROM outbox.expire($1, $2, $3, $4, $5, $6) e
