-- What was attempted in a span of time, in up to 91 pieces of it: $1 since text: a time, or a length of time that is subtracted from now
-- (`ago 90 s`, `2h`); $2 rows that are read of each piece int. Returns one JSON object: now, first and step in seconds, and pieces: at,
-- endpoint, attempts, delivered, failed, dead (without an attempt, too), p50 and p95 of the time that they took; and partly: at and covered.
--
-- Of a piece with more rows the newest are read, by the index: `covered` seconds of it. So an endless history costs what a short one does,
-- and every piece is seen. Steps are whole, and begin where the clock has them, so that two looks show the same pieces.
WITH asked AS MATERIALIZED (
    SELECT n.now, extract(epoch FROM n.now)::double precision AS until,
           least(greatest(extract(epoch FROM n.now - coalesce(
               CASE WHEN starts_with($1, 'ago ') THEN n.now - substr($1, 5)::interval
                    WHEN $1 ~ '^[0-9]+ *[a-z]' THEN n.now - $1::interval ELSE $1::timestamptz END, n.now - interval '1h')), 60), 2678400)::double precision AS length
      FROM (SELECT clock_timestamp() AS now) n
), span AS MATERIALIZED (
    SELECT a.now, a.until, s.step, floor((a.until - a.length) / s.step) * s.step AS first
      FROM asked a
     CROSS JOIN LATERAL (SELECT min(v.step) AS step FROM unnest(ARRAY[1, 5, 15, 60, 300, 1200, 3600, 7200, 21600, 43200]) v (step)
                          WHERE a.length / v.step <= 90) s
), piece AS MATERIALIZED (
    SELECT s.first + s.step * n AS at, to_timestamp(s.first + s.step * n) AS begins,
           least(to_timestamp(s.first + s.step * (n + 1)), s.now) AS ends
      FROM span s CROSS JOIN LATERAL generate_series(0, 90) n
     WHERE s.first + s.step * n < s.until
), seen AS MATERIALIZED (
    SELECT p.at, p.begins, p.ends, a.started_at, a.duration, a.endpoint, a.settlement, a.attempt
      FROM piece p
     CROSS JOIN LATERAL (SELECT a.started_at, a.duration, a.endpoint, a.settlement, a.attempt
                           FROM outbox.attempts a
                          WHERE a.started_at >= p.begins AND a.started_at < p.ends
                            AND a.settlement IN ('delivered', 'retry', 'put_off', 'dead', 'undo')
                          ORDER BY a.started_at DESC
                          LIMIT $2::integer) a
), partly AS MATERIALIZED (
    SELECT s.at, greatest(extract(epoch FROM s.ends - min(s.started_at))::double precision, 0.001) AS covered
      FROM seen s
     GROUP BY s.at, s.ends
    HAVING count(*) = $2::integer
), counted AS MATERIALIZED (
    SELECT s.at, s.endpoint, count(*) FILTER (WHERE s.attempt > 0) AS attempts,
           count(*) FILTER (WHERE s.settlement = 'delivered') AS delivered,
           count(*) FILTER (WHERE s.settlement <> 'delivered' AND s.attempt > 0) AS failed,
           count(*) FILTER (WHERE s.settlement = 'dead') AS dead,
           percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY extract(epoch FROM s.duration)::double precision)
               FILTER (WHERE s.attempt > 0) AS took
      FROM seen s
     GROUP BY s.at, s.endpoint
)
SELECT json_build_object(
           'now', s.until, 'first', s.first, 'step', s.step,
           'pieces', (SELECT coalesce(json_agg(json_build_object(
                              'at', c.at, 'endpoint', c.endpoint, 'attempts', c.attempts, 'delivered', c.delivered, 'failed', c.failed,
                              'dead', c.dead, 'p50', c.took[1], 'p95', c.took[2]) ORDER BY c.at, c.endpoint), '[]')
                        FROM counted c),
           'partly', (SELECT coalesce(json_agg(json_build_object('at', p.at, 'covered', p.covered) ORDER BY p.at), '[]')
                        FROM partly p))::text AS row
  FROM span s
