-- The endpoint asked to be left alone: no relay claims for it before that. Never shortens a longer wait.
-- $1 endpoint text, $2 seconds.
UPDATE outbox.endpoints e
   SET not_before = greatest(e.not_before, clock_timestamp() + make_interval(secs => $2))
 WHERE e.endpoint = $1
