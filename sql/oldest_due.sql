-- How long the oldest message has been due that nothing but a relay keeps from being delivered: its endpoint is neither paused nor
-- closed, and no earlier message of its key waits or is dead. Of a lane the first 100 that are ready and the first 100 that
-- were scheduled are looked at, of a key the first one. It starts at the bottom, where what is on its way lies: the caller bounds how long
-- it may take.
-- $1 topics text[], $2 lane endpoints text[], $3 the endpoints that they lead to text[], $4 delivered in order boolean[]: in step.
-- Returns topic, endpoint (the lane's), seconds: one row, or none.
SELECT l.topic, l.endpoint, extract(epoch FROM now() - d.since)::double precision AS seconds
  FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS l (topic, endpoint, leads_to, in_order)
  LEFT JOIN outbox.endpoints e ON e.endpoint = l.leads_to
 CROSS JOIN LATERAL (
        SELECT min(k.since) AS since
          FROM (SELECT c.key, min(c.seq) AS seq, min(c.since) AS since
                  FROM ((SELECT m.key, m.seq, m.created_at AS since
                           FROM outbox.messages m
                          WHERE m.topic = l.topic AND m.endpoint = l.endpoint AND m.due_at IS NULL
                          ORDER BY m.seq
                          LIMIT 100)
                        UNION ALL
                        (SELECT m.key, m.seq, m.due_at
                           FROM outbox.messages m
                          WHERE m.topic = l.topic AND m.endpoint = l.endpoint AND m.due_at <= now()
                          ORDER BY m.due_at, m.seq
                          LIMIT 100)) c
                 GROUP BY c.key) k
         WHERE k.key IS NULL OR NOT l.in_order
            -- No EXISTS: all held keys would be hashed for it.
            OR coalesce((SELECT false
                           FROM outbox.held_keys h
                          WHERE h.topic = l.topic AND h.lane_endpoint = l.endpoint AND h.key = k.key
                          LIMIT 1), true)
           AND coalesce((SELECT f.due_at
                           FROM outbox.messages f
                          WHERE f.topic = l.topic AND f.endpoint = l.endpoint AND f.key = k.key AND f.seq < k.seq
                          ORDER BY f.seq
                          LIMIT 1) <= now(), true)) d
 WHERE d.since IS NOT NULL
   AND e.paused_at IS NULL
   AND coalesce(e.breaker, 'closed') = 'closed'
   AND coalesce(e.not_before <= now(), true)
 ORDER BY d.since
 LIMIT 1
