-- The lanes that hold rows, in the same skip scan as discover.sql, with a bounded count of each: reading a backlog of millions
-- would cost more than knowing that it is large.
-- $1 count at most int. Returns topic, endpoint (the lane's), leads_to (the endpoints that it goes to, as far as a relay has said so), pending (up to $1 + 1), oldest_seconds (age of its oldest
-- ready row, NULL if none), due_in (seconds until the first waiting row, NULL if none), unrouted (no relay that lives can deliver
-- it: no route, or no such endpoint).
WITH RECURSIVE ready (topic, endpoint, created_at) AS (
    (SELECT m.topic, m.endpoint, m.created_at
       FROM outbox.messages m
      WHERE m.due_at IS NULL
      ORDER BY m.topic, m.endpoint, m.seq
      LIMIT 1)
    UNION ALL
    SELECT n.topic, n.endpoint, n.created_at
      FROM ready r
     CROSS JOIN LATERAL (
            SELECT m.topic, m.endpoint, m.created_at
              FROM outbox.messages m
             WHERE m.due_at IS NULL AND (m.topic, m.endpoint) > (r.topic, r.endpoint)
             ORDER BY m.topic, m.endpoint, m.seq
             LIMIT 1) n
), waiting (topic, endpoint, due_at, created_at) AS (
    (SELECT m.topic, m.endpoint, m.due_at, m.created_at
       FROM outbox.messages m
      WHERE m.due_at IS NOT NULL
      ORDER BY m.topic, m.endpoint, m.due_at
      LIMIT 1)
    UNION ALL
    SELECT n.topic, n.endpoint, n.due_at, n.created_at
      FROM waiting w
     CROSS JOIN LATERAL (
            SELECT m.topic, m.endpoint, m.due_at, m.created_at
              FROM outbox.messages m
             WHERE m.due_at IS NOT NULL AND (m.topic, m.endpoint) > (w.topic, w.endpoint)
             ORDER BY m.topic, m.endpoint, m.due_at
             LIMIT 1) n
), lane AS (
    SELECT l.topic, l.endpoint, min(l.created_at) AS created_at, min(l.due_at) AS due_at
      FROM (SELECT r.topic, r.endpoint, r.created_at, NULL::timestamptz AS due_at FROM ready r
            UNION ALL
            -- It may be due from ever or never: with the first it has been since it came.
            SELECT w.topic, w.endpoint, NULL, CASE w.due_at WHEN '-infinity' THEN w.created_at WHEN 'infinity' THEN NULL ELSE w.due_at END FROM waiting w) l
     GROUP BY l.topic, l.endpoint
)
SELECT l.topic, l.endpoint,
       CASE WHEN l.endpoint <> '' THEN ARRAY[l.endpoint]
            ELSE coalesce((SELECT o.leads_to FROM outbox.lanes o WHERE o.topic = l.topic AND o.endpoint = ''), '{}') END AS leads_to,
       (SELECT count(*) FROM (SELECT FROM outbox.messages m
                               WHERE m.topic = l.topic AND m.endpoint = l.endpoint AND m.due_at IS NULL
                               ORDER BY m.seq LIMIT $1::integer + 1) c)
       + (SELECT count(*) FROM (SELECT FROM outbox.messages m
                                 WHERE m.topic = l.topic AND m.endpoint = l.endpoint AND m.due_at IS NOT NULL
                                 ORDER BY m.due_at LIMIT $1::integer + 1) c) AS pending,
       extract(epoch FROM clock_timestamp() - l.created_at)::double precision AS oldest_seconds,
       (extract(epoch FROM l.due_at) - extract(epoch FROM clock_timestamp()))::double precision AS due_in,
       coalesce((SELECT bool_and((l.topic, l.endpoint) IN (SELECT u.topic, u.endpoint
                                                             FROM unnest(r.unrouted_topics, r.unrouted_endpoints) AS u (topic, endpoint)))
                   FROM outbox.relays r
                  WHERE r.beat_at > clock_timestamp() - r.lease_time), false) AS unrouted
  FROM lane l
 ORDER BY l.topic, l.endpoint
