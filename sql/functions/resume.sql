-- Lets deliveries to an endpoint go on. Returns whether it was paused.
CREATE OR REPLACE FUNCTION outbox.resume(p_endpoint text) RETURNS boolean
LANGUAGE sql AS $$
    WITH resumed AS (
        UPDATE outbox.endpoints e
           SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
         WHERE e.endpoint = p_endpoint AND e.paused_at IS NOT NULL
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM resumed);
$$;
COMMENT ON FUNCTION outbox.resume IS 'Public. Lets deliveries to an endpoint go on: outbox.resume(endpoint).';
