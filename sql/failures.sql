-- What failed in a span of time, by endpoint and error: $1 since text: a time, or a length of time that is subtracted from now (`ago 90 s`,
-- `2h`); $2 of the newest so many rows int; $3 of this endpoint text (NULL = all); $4 groups int. Returns one JSON object: read = how many rows
-- were, back_to = when the first of them was, groups = how many there are, and failures, the largest group first: endpoint, outcome, status,
-- error with `#` for its numbers and `…` for its UUIDs, count, dead, first, last, and of the last one id, topic and the whole error.
WITH newest AS MATERIALIZED (
    SELECT a.started_at, a.id, a.topic, a.endpoint, a.outcome, a.settlement, a.status, a.error
      FROM outbox.attempts a
     WHERE a.settlement <> 'delivered' AND a.settlement IN ('retry', 'put_off', 'dead', 'undo')
       AND ($3::text IS NULL OR a.endpoint = $3)
       AND a.started_at >= CASE WHEN starts_with($1, 'ago ') THEN now() - substr($1, 5)::interval
                                WHEN $1 ~ '^[0-9]+ *[a-z]' THEN now() - $1::interval
                                ELSE coalesce($1::timestamptz, now() - interval '1h') END
     -- The order of the index of what failed, which no other one has. Where failures are many (one attempt in twenty), the one of all
     -- attempts may be read all the same, with what is between them.
     ORDER BY a.started_at DESC, a.endpoint DESC
     LIMIT $2::integer
), named AS MATERIALIZED (
    SELECT n.started_at, n.id, n.topic, n.endpoint, n.outcome, n.settlement, n.status, n.error,
           -- The status is no number of the message: it stays. A text can be made to be long and full of numbers: its beginning will do.
           p.kept || regexp_replace(regexp_replace(p.rest, '[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', '…', 'gi'), '[0-9]+', '#', 'g') AS pattern
      FROM newest n
     CROSS JOIN LATERAL (SELECT CASE WHEN n.error ~ '^HTTP [0-9]{3}' THEN 8 ELSE 0 END AS length) h
     CROSS JOIN LATERAL (SELECT left(n.error, h.length) AS kept, substr(left(n.error, 200), h.length + 1) AS rest) p
), alike AS MATERIALIZED (
    SELECT n.endpoint, n.outcome, n.status, n.pattern, count(*) AS count, count(*) FILTER (WHERE n.settlement = 'dead') AS dead,
           min(n.started_at) AS first, max(n.started_at) AS last,
           (array_agg(json_build_array(n.id, n.topic, n.error) ORDER BY n.started_at DESC, n.id))[1] AS example
      FROM named n
     GROUP BY n.endpoint, n.outcome, n.status, n.pattern
), largest AS MATERIALIZED (
    SELECT a.* FROM alike a ORDER BY a.count DESC, a.last DESC, a.endpoint, a.pattern LIMIT $4::integer
)
SELECT json_build_object(
           'read', (SELECT count(*) FROM newest n), 'back_to', (SELECT min(n.started_at) FROM newest n),
           'groups', (SELECT count(*) FROM alike a),
           'failures', (SELECT coalesce(json_agg(json_build_object(
                                'endpoint', l.endpoint, 'outcome', l.outcome, 'status', l.status, 'error', l.pattern, 'count', l.count,
                                'dead', l.dead, 'first', l.first, 'last', l.last, 'id', l.example ->> 0, 'topic', l.example ->> 1,
                                'whole', l.example ->> 2) ORDER BY l.count DESC, l.last DESC, l.endpoint, l.pattern), '[]')
                          FROM largest l))::text AS row
