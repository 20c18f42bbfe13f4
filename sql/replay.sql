-- Replays one message: $1 id uuid, $2 endpoint text (NULL = all), $3 what was delivered boolean, $4 under a new key boolean, $5 why text,
-- $6 by whom text (NULL = the database's user). See functions/replay.sql.
SELECT r.ids, r.pending FROM outbox.replay($1, $2, $3, $4, $5, coalesce($6, current_user)) r
