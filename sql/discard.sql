-- Removes the dead letters of a message: $1 id uuid, $2 endpoint text (NULL = all), $3 reason text, $4 by whom text (NULL = the
-- database's user). Returns how many. See functions/discard.sql.
SELECT outbox.discard($1, $2, $3, coalesce($4, current_user)) AS discarded
