-- Stops deliveries to an endpoint: $1 endpoint text, $2 reason text, $3 by whom text. Returns whether it was running.
SELECT outbox.pause($1, $2, $3) AS changed
