-- Wants a saga to go back: $1 id uuid, $2 why text, $3 by whom text (NULL = the database's user). See functions/cancel_saga.sql.
SELECT outbox.cancel_saga($1, $2, coalesce($3, current_user)) AS status
