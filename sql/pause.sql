-- Stops deliveries to an endpoint: $1 endpoint text, $2 reason text, $3 by whom text (NULL = the database's user). Returns whether it was
-- running.
SELECT outbox.pause($1, $2, coalesce($3, current_user)) AS changed
