-- Goes on with a parked saga without the step that it is at: $1 id uuid, $2 why text, $3 by whom text (NULL = the database's user). See
-- functions/skip_step.sql.
SELECT outbox.skip_step($1, $2, coalesce($3, current_user)) AS status
