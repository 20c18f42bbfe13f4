-- Makes the rows that claims of these lanes will lock.
-- $1 topics text[], $2 lane endpoints text[], in step.
INSERT INTO outbox.lanes (topic, endpoint)
SELECT l.topic, l.endpoint
  FROM unnest($1::text[], $2::text[]) AS l (topic, endpoint)
 ORDER BY l.topic, l.endpoint
ON CONFLICT (topic, endpoint) DO NOTHING
