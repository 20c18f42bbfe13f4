-- Lets deliveries to an endpoint go on. Returns whether it was paused, NULL if no relay ever had one of that name.
CREATE OR REPLACE FUNCTION outbox.resume(p_endpoint text) RETURNS boolean
LANGUAGE sql AS $$
    WITH resumed AS (
        UPDATE outbox.endpoints e
           SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
         WHERE e.endpoint = p_endpoint AND e.paused_at IS NOT NULL
        RETURNING 1
    )
    SELECT CASE WHEN EXISTS (SELECT FROM outbox.endpoints e WHERE e.endpoint = p_endpoint)
                THEN EXISTS (SELECT FROM resumed) END;
$$;
COMMENT ON FUNCTION outbox.resume IS 'Public. Lets deliveries to an endpoint go on: outbox.resume(endpoint).';
