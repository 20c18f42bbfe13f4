-- Gives back what a relay does not know that it holds, after a claim whose commit is unknown to it.
--
-- The lock waits for a claim that is still running (it holds the row FOR KEY SHARE). The new session number stops one that
-- a pooler or a dead connection delivers later. After that, each lease that is not in p_known is one that nobody serves.
--
-- Returns the new session, NULL if the relay's row is gone.
CREATE OR REPLACE FUNCTION outbox.recover(p_relay uuid, p_known bigint[], OUT session integer)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    PERFORM FROM outbox.relays r WHERE r.relay = p_relay FOR UPDATE;
    UPDATE outbox.relays r SET session = r.session + 1 WHERE r.relay = p_relay RETURNING r.session INTO recover.session;
    DELETE FROM outbox.leases l WHERE l.relay = p_relay AND l.lease <> ALL (p_known);
END
$$;
COMMENT ON FUNCTION outbox.recover IS 'Private. Gives back the leases that a relay does not know of.';
