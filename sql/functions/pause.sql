-- Stops deliveries to an endpoint, for all relays. Requests in flight finish; rows stay, use no attempts and keep coming in.
-- Returns whether it was running, NULL if no relay ever had an endpoint of that name.
CREATE OR REPLACE FUNCTION outbox.pause(p_endpoint text, p_reason text, p_by text DEFAULT current_user) RETURNS boolean
LANGUAGE sql AS $$
    WITH paused AS (
        UPDATE outbox.endpoints e
           SET paused_at = now(), paused_by = p_by, pause_reason = p_reason,
               changed_at = now(), change = 'paused', changed_by = p_by, change_reason = p_reason
         WHERE e.endpoint = p_endpoint AND e.paused_at IS NULL
        RETURNING 1
    )
    SELECT CASE WHEN EXISTS (SELECT FROM outbox.endpoints e WHERE e.endpoint = p_endpoint)
                THEN EXISTS (SELECT FROM paused) END;
$$;
COMMENT ON FUNCTION outbox.pause IS 'Public. Stops deliveries to an endpoint: outbox.pause(endpoint, reason).';
