-- The highest seq that is in use, as far as indexes tell: exact for rows that are ready, and a look at the first thousand
-- that wait or died in each place. A sequence that is behind it (a logical replica that took over) would hand out numbers
-- again and break the order of keys.
CREATE OR REPLACE FUNCTION outbox.highest_seq() RETURNS bigint
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
AS $$
    WITH RECURSIVE lane (topic, endpoint, seq) AS (
        (SELECT m.topic, m.endpoint, m.seq
           FROM outbox.messages m
          WHERE m.due_at IS NULL
          ORDER BY m.topic DESC, m.endpoint DESC, m.seq DESC
          LIMIT 1)
        UNION ALL
        SELECT n.topic, n.endpoint, n.seq
          FROM lane l
         CROSS JOIN LATERAL (
                SELECT m.topic, m.endpoint, m.seq
                  FROM outbox.messages m
                 WHERE m.due_at IS NULL AND (m.topic, m.endpoint) < (l.topic, l.endpoint)
                 ORDER BY m.topic DESC, m.endpoint DESC, m.seq DESC
                 LIMIT 1) n
    )
    SELECT greatest(
        (SELECT max(l.seq) FROM lane l),
        (SELECT max(w.seq) FROM (SELECT m.seq FROM outbox.messages m WHERE m.due_at IS NOT NULL
                                  ORDER BY m.topic, m.endpoint, m.due_at LIMIT 1000) w),
        (SELECT max(d.seq) FROM (SELECT d.seq FROM outbox.dead_letters d ORDER BY d.died_at DESC LIMIT 1000) d));
$$;
COMMENT ON FUNCTION outbox.highest_seq IS 'Private. The highest seq in use, as far as indexes tell.';
