-- Takes the notice that has waited for the longest: nobody else sends it for $1 seconds double precision. Those of one alert go
-- one after the other. Returns notice, attempts (this one included), age in seconds, content (text); nothing if none is to be sent.
UPDATE outbox.notices n
   SET not_before = clock_timestamp() + make_interval(secs => $1), attempts = n.attempts + 1
 WHERE n.notice = (
           SELECT f.notice
             FROM outbox.notices f
            WHERE f.not_before <= clock_timestamp()
              AND NOT EXISTS (SELECT FROM outbox.notices e WHERE e.kind = f.kind AND e.subject = f.subject AND e.seq < f.seq)
            ORDER BY f.seq
            LIMIT 1
              FOR UPDATE OF f SKIP LOCKED)
RETURNING n.notice, n.attempts, extract(epoch FROM clock_timestamp() - n.created_at)::double precision AS age, n.content::text AS content
