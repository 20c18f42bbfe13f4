-- Goes on with a parked saga: $1 id uuid, $2 under a new key boolean, $3 why text, $4 by whom text (NULL = the database's user). See
-- functions/resume_saga.sql.
SELECT outbox.resume_saga($1, $2, $3, coalesce($4, current_user)) AS status
