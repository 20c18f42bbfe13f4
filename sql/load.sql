-- Reads what an attempt needs, for the messages that the claim before it in this transaction took; none if it took nothing. A row
-- that is gone all the same is not returned.
-- $1 relay uuid, $2 lane endpoint text. Ordered by seq. Times are compared by the caller, for less than it costs here; expires_at
-- may be infinite, which it has no word for: never, or long ago.
SELECT m.id, m.key, m.type, m.payload, m.body, m.content_type, m.headers::text AS headers,
       m.seq, m.attempts, m.lost, m.throttled, m.generation, m.sent_to, m.step::text AS step,
       m.created_at, coalesce(m.replayed_at, m.created_at) AS since, clock_timestamp() AS now,
       CASE m.expires_at WHEN 'infinity' THEN NULL WHEN '-infinity' THEN timestamptz 'epoch' ELSE m.expires_at END AS expires_at
  FROM outbox.messages m
 WHERE m.id = ANY (ARRAY(
           SELECT unnest(l.ids) FROM outbox.leases l
            WHERE l.relay = $1 AND l.lease = nullif(current_setting('outbox.claimed', true), '')::bigint))
   AND m.endpoint = $2
 ORDER BY m.seq
