-- Lists the lanes that hold rows, by a skip scan over the two indexes: one probe per lane, however many rows it holds.
-- Returns topic, endpoint (the lane's), ready (rows without a due time are there, leased ones too) and due_in (seconds
-- until its first waiting row is due, negative if one is due already or leased; NULL if none waits). Two epochs are
-- subtracted, not two times: an application may say 'infinity', and PostgreSQL refuses to subtract that.
-- $1 boolean: whether to look at the doorbell too. Then one row has no topic, and hangs, kept, stray and relays of
-- functions/doorbell.sql, which are NULL in all others. $2 text[]: names of the plans of the caller's configuration. Where a saga can
-- begin or is to go back, or will be at its deadline, one row has no topic and no hangs, and due_in says when.
WITH RECURSIVE ready (topic, endpoint) AS (
    (SELECT m.topic, m.endpoint
       FROM outbox.messages m
      WHERE m.due_at IS NULL
      ORDER BY m.topic, m.endpoint
      LIMIT 1)
    UNION ALL
    SELECT n.topic, n.endpoint
      FROM ready r
     CROSS JOIN LATERAL (
            SELECT m.topic, m.endpoint
              FROM outbox.messages m
             WHERE m.due_at IS NULL AND (m.topic, m.endpoint) > (r.topic, r.endpoint)
             ORDER BY m.topic, m.endpoint
             LIMIT 1) n
), waiting (topic, endpoint, due_at) AS (
    (SELECT m.topic, m.endpoint, m.due_at
       FROM outbox.messages m
      WHERE m.due_at IS NOT NULL
      ORDER BY m.topic, m.endpoint, m.due_at
      LIMIT 1)
    UNION ALL
    SELECT n.topic, n.endpoint, n.due_at
      FROM waiting w
     CROSS JOIN LATERAL (
            SELECT m.topic, m.endpoint, m.due_at
              FROM outbox.messages m
             WHERE m.due_at IS NOT NULL AND (m.topic, m.endpoint) > (w.topic, w.endpoint)
             ORDER BY m.topic, m.endpoint, m.due_at
             LIMIT 1) n
)
SELECT l.topic, l.endpoint, bool_or(l.ready) AS ready, min(l.due_in) AS due_in,
       NULL::boolean AS hangs, NULL::boolean AS kept, NULL::boolean AS stray, NULL::bigint AS relays
  FROM (SELECT r.topic, r.endpoint, true AS ready, NULL::double precision AS due_in FROM ready r
        UNION ALL
        SELECT w.topic, w.endpoint, false, (extract(epoch FROM w.due_at) - extract(epoch FROM clock_timestamp()))::double precision FROM waiting w) l
 GROUP BY l.topic, l.endpoint
UNION ALL
SELECT NULL, NULL, NULL, NULL, b.hangs, b.kept, b.stray, b.relays FROM outbox.doorbell() b WHERE $1
UNION ALL
SELECT NULL, NULL, NULL, min(s.due_in), NULL, NULL, NULL, NULL
  FROM (SELECT 0.0::double precision AS due_in
         WHERE EXISTS (SELECT FROM outbox.sagas s WHERE s.status = 'new' AND s.steps IS NOT NULL)
            OR EXISTS (SELECT FROM outbox.sagas s WHERE s.status = 'running' AND s.wanted = 'back')
            OR EXISTS (SELECT FROM unnest($2::text[]) AS n (name)
                        CROSS JOIN LATERAL (SELECT FROM outbox.sagas s
                                             WHERE s.status = 'new' AND s.steps IS NULL AND s.name = n.name LIMIT 1) s)
        UNION ALL
        SELECT (SELECT (extract(epoch FROM s.deadline_at) - extract(epoch FROM clock_timestamp()))::double precision
                  FROM outbox.sagas s
                 WHERE s.status IN ('running', 'parked') AND s.phase = 'do' AND s.wanted IS NULL AND s.deadline_at IS NOT NULL
                 ORDER BY s.deadline_at LIMIT 1)) s
HAVING min(s.due_in) IS NOT NULL
