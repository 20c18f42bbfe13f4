-- Opens an ordering key that a dead message holds: $1 topic text, $2 key text, $3 endpoint text (NULL = all), $4 reason text, $5 by whom
-- text (NULL = the database's user). Returns how many holds there were. See functions/release_key.sql.
SELECT outbox.release_key($1, $2, $3, $4, coalesce($5, current_user)) AS opened
