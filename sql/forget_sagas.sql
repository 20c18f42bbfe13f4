-- Forgets sagas that are over and past retention, the oldest first; those that somebody else forgets just now are his.
-- $1 keep them for seconds, $2 max rows int. Returns how many there were.
WITH gone AS (
    DELETE FROM outbox.sagas s
     WHERE s.ctid = ANY (ARRAY(
               SELECT o.ctid FROM outbox.sagas o WHERE o.finished_at < now() - make_interval(secs => $1)
                ORDER BY o.finished_at LIMIT $2 FOR UPDATE SKIP LOCKED))
       AND s.finished_at IS NOT NULL
    RETURNING 1
)
SELECT count(*)::integer AS forgotten FROM gone
