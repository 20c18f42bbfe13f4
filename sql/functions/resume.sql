-- Lets deliveries to an endpoint go on: ends a pause, a wait that the receiver asked for, and the pause of the breaker.
-- p_why and p_by are kept with the endpoint, as those of a pause are, until the next pause or resume.
--
-- Returns whether there was one, NULL if no relay ever had an endpoint of that name.
CREATE OR REPLACE FUNCTION outbox.resume(p_endpoint text, p_why text DEFAULT NULL, p_by text DEFAULT current_user) RETURNS boolean
LANGUAGE sql AS $$
    WITH resumed AS (
        UPDATE outbox.endpoints e
           SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, not_before = NULL,
               breaker = 'closed', breaker_until = NULL, openings = 0, successes = 0, failures = 0,
               changed_at = now(), change = 'resumed', changed_by = p_by, change_reason = p_why
         WHERE e.endpoint = p_endpoint
           AND (e.paused_at IS NOT NULL OR e.not_before > now() OR e.breaker <> 'closed')
        RETURNING 1
    )
    SELECT CASE WHEN EXISTS (SELECT FROM outbox.endpoints e WHERE e.endpoint = p_endpoint)
                THEN EXISTS (SELECT FROM resumed) END;
$$;
COMMENT ON FUNCTION outbox.resume IS 'Public. Lets deliveries to an endpoint go on: outbox.resume(endpoint, p_why => ''…'').';
