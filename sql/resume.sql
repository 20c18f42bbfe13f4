-- Lets deliveries to an endpoint go on: $1 endpoint text, $2 reason text, $3 by whom text (NULL = the database's user). Returns whether it
-- was paused, closed, or left alone by its breaker.
SELECT outbox.resume($1, $2, coalesce($3, current_user)) AS changed
