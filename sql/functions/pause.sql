-- Stops deliveries to an endpoint, for all relays. Requests in flight finish; rows stay, use no attempts and keep coming in.
-- Returns whether it was running.
CREATE OR REPLACE FUNCTION outbox.pause(p_endpoint text, p_reason text, p_by text DEFAULT current_user) RETURNS boolean
LANGUAGE sql AS $$
    WITH paused AS (
        INSERT INTO outbox.endpoints AS e (endpoint, paused_at, paused_by, pause_reason)
        VALUES (p_endpoint, now(), p_by, p_reason)
        ON CONFLICT (endpoint) DO UPDATE
           SET paused_at = now(), paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
         WHERE e.paused_at IS NULL
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM paused);
$$;
COMMENT ON FUNCTION outbox.pause IS 'Public. Stops deliveries to an endpoint: outbox.pause(endpoint, reason).';
