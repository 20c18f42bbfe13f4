-- Makes the rows that claims for these endpoints will lock.
-- $1 names text[].
INSERT INTO outbox.endpoints (endpoint)
SELECT e.endpoint
  FROM unnest($1::text[]) AS e (endpoint)
 ORDER BY e.endpoint
ON CONFLICT (endpoint) DO NOTHING
