-- Makes the rows that claims for these endpoints will lock, and writes down how many seconds a request to each may take.
-- $1 names text[], $2 timeouts float8[], in step.
INSERT INTO outbox.endpoints AS o (endpoint, timeout)
SELECT e.endpoint, e.timeout
  FROM unnest($1::text[], $2::double precision[]) AS e (endpoint, timeout)
 ORDER BY e.endpoint
ON CONFLICT (endpoint) DO UPDATE SET timeout = excluded.timeout WHERE o.timeout IS DISTINCT FROM excluded.timeout
