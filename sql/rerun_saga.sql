-- Runs a saga again from a step: $1 id uuid, $2 step text (NULL = the first), $3 input text, a JSON value (NULL = as it was), $4 why text,
-- $5 by whom text (NULL = the database's user). See functions/rerun_saga.sql.
SELECT outbox.rerun_saga($1, $2, $3::text::json, $4, coalesce($5, current_user)) AS generation
