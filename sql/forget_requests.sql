-- Forgets requests that are past retention, the oldest first; those that somebody else forgets just now are his.
-- $1 keep them for seconds, $2 max rows int. Returns how many there were.
WITH gone AS (
    DELETE FROM outbox.requests r
     WHERE r.ctid = ANY (ARRAY(
               SELECT o.ctid FROM outbox.requests o WHERE o.created_at < now() - make_interval(secs => $1)
                ORDER BY o.created_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*)::integer AS forgotten FROM gone
