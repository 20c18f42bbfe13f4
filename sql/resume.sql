-- Lets deliveries to an endpoint go on: $1 endpoint text. Returns whether it was paused.
SELECT outbox.resume($1) AS changed
