-- Reads what an attempt needs, for messages that a claim took. A row that was cancelled or settled since is not returned.
-- $1 ids uuid[], $2 lane endpoint text. Ordered by seq. age and expires_in are seconds by the database's clock;
-- expires_at may be 'infinity', which can't be subtracted from.
SELECT m.id, m.topic, m.key, m.type, m.payload::text AS payload, m.body, m.content_type, m.headers::text AS headers,
       m.seq, m.attempts, m.lost, m.throttled, m.generation, m.sent_to,
       to_char(m.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at,
       extract(epoch FROM clock_timestamp() - m.created_at)::double precision AS age,
       (extract(epoch FROM m.expires_at) - extract(epoch FROM clock_timestamp()))::double precision AS expires_in
  FROM outbox.messages m
 WHERE m.id = ANY ($1) AND m.endpoint = $2
 ORDER BY m.seq
