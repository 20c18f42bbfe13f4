-- Ends a relay: gives back all that it still holds, untouched, and forgets it.
CREATE OR REPLACE FUNCTION outbox.deregister(p_relay uuid) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    PERFORM FROM outbox.relays r WHERE r.relay = p_relay FOR UPDATE;
    DELETE FROM outbox.leases l WHERE l.relay = p_relay;
    DELETE FROM outbox.relays r WHERE r.relay = p_relay;
END
$$;
COMMENT ON FUNCTION outbox.deregister IS 'Private. Ends a relay.';
