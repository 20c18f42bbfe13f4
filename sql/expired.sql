-- Messages whose time is over, by lane: the first ones after a place in the order of their times. Nothing has an entry in the
-- index that has no such time. (now() and not clock_timestamp(): the scan must end where the future begins.)
-- $1 the place: expires_at timestamptz (NULL = before all times) and $2 its seq bigint; $3 messages at most int. Returns topic,
-- endpoint (the lane's), ids, and the same in each row: the place that was reached, and more (there may be some after it).
WITH expired AS MATERIALIZED (
    SELECT m.topic, m.endpoint, m.id, m.expires_at, m.seq
      FROM outbox.messages m
     WHERE m.expires_at IS NOT NULL
       AND (m.expires_at, m.seq) > (coalesce($1::timestamptz, '-infinity'), $2::bigint) AND m.expires_at <= now()
     ORDER BY m.expires_at, m.seq
     LIMIT $3::integer
), reached AS (
    -- The client's clock type has no infinity.
    SELECT CASE WHEN e.expires_at > '-infinity' THEN e.expires_at END AS expires_at, e.seq,
           (SELECT count(*) FROM expired) >= $3::integer AS more
      FROM expired e
     ORDER BY e.expires_at DESC, e.seq DESC
     LIMIT 1
)
SELECT e.topic, e.endpoint, array_agg(e.id) AS ids, r.expires_at, r.seq, r.more
  FROM expired e CROSS JOIN reached r
 GROUP BY e.topic, e.endpoint, r.expires_at, r.seq, r.more
 ORDER BY e.topic, e.endpoint
