-- Sets the guard word: $1 text.
UPDATE outbox.meta SET guard = $1
