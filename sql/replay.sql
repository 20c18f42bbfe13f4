-- Replays one message: $1 id uuid, $2 endpoint text (NULL = all), $3 under a new key boolean, $4 reason text, $5 by whom text (NULL = the
-- database's user). See functions/replay.sql.
SELECT r.ids, r.pending FROM outbox.replay($1, $2, $3, $4, coalesce($5, current_user)) r
