-- Reads what an attempt needs, for messages that a claim took. A row that was cancelled or settled since is not returned.
-- $1 ids uuid[], $2 lane endpoint text. Ordered by seq. Times are compared by the caller, for less than it costs here; expires_at
-- may be infinite, which it has no word for: never, or long ago.
SELECT m.id, m.key, m.type, m.payload, m.body, m.content_type, m.headers::text AS headers,
       m.seq, m.attempts, m.lost, m.throttled, m.generation, m.sent_to,
       m.created_at, clock_timestamp() AS now,
       CASE m.expires_at WHEN 'infinity' THEN NULL WHEN '-infinity' THEN timestamptz 'epoch' ELSE m.expires_at END AS expires_at
  FROM outbox.messages m
 WHERE m.id = ANY ($1) AND m.endpoint = $2
 ORDER BY m.seq
