-- Takes a pending message back: $1 id uuid, $2 reason text, $3 by whom text (NULL = the database's user). See functions/cancel.sql.
SELECT c.cancelled, c.in_flight FROM outbox.cancel($1, $2, coalesce($3, current_user)) c
