-- Lets deliveries to an endpoint go on: ends a pause, a wait that the receiver asked for, and the pause of the breaker.
-- Returns whether there was one, NULL if no relay ever had an endpoint of that name.
CREATE OR REPLACE FUNCTION outbox.resume(p_endpoint text) RETURNS boolean
LANGUAGE sql AS $$
    WITH resumed AS (
        UPDATE outbox.endpoints e
           SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, not_before = NULL,
               breaker = 'closed', breaker_until = NULL, openings = 0, successes = 0, failures = 0
         WHERE e.endpoint = p_endpoint
           AND (e.paused_at IS NOT NULL OR e.not_before > now() OR e.breaker <> 'closed')
        RETURNING 1
    )
    SELECT CASE WHEN EXISTS (SELECT FROM outbox.endpoints e WHERE e.endpoint = p_endpoint)
                THEN EXISTS (SELECT FROM resumed) END;
$$;
COMMENT ON FUNCTION outbox.resume IS 'Public. Lets deliveries to an endpoint go on: outbox.resume(endpoint).';
