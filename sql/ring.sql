-- Rings the doorbell, whether somebody sleeps or not: $1 text, empty as in functions/ring.sql, or the word of a keeper that tries
-- whether it hears.
SELECT pg_notify('outbox_bell', $1)
