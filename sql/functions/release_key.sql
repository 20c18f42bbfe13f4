-- Opens an ordering key that a dead message holds (policy hold): what waited behind it goes on without it. The dead letter
-- stays, and can be replayed later; it comes after what was sent meanwhile then. With several endpoints, the key opens at all
-- of them; p_endpoint names one. A message that died before fan-out holds its key for all of them, and can't be had for one. p_why and p_by are kept in the history of the dead message.
--
-- Returns how many holds there were.
CREATE OR REPLACE FUNCTION outbox.release_key(
    p_topic text, p_key text, p_endpoint text DEFAULT NULL, p_why text DEFAULT NULL, p_by text DEFAULT current_user
) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_opened integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.release_key needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    PERFORM outbox.ensure_partitions();
    PERFORM FROM outbox.lanes l WHERE l.topic = p_topic ORDER BY l.topic, l.endpoint FOR UPDATE;
    WITH opened AS (
        DELETE FROM outbox.held_keys h
         USING outbox.lanes l
         WHERE l.topic = p_topic AND h.topic = l.topic AND h.lane_endpoint = l.endpoint AND h.key = p_key
           AND (p_endpoint IS NULL OR h.endpoint = p_endpoint)
        RETURNING h.*
    ), told AS (
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome,
            settlement, reason, relay)
        SELECT clock_timestamp(), interval '0', o.id, o.seq, coalesce(d.generation, 0), 0, o.topic, o.endpoint, o.key,
               'key_released', 'key_released', p_why, p_by
          FROM opened o
          LEFT JOIN outbox.dead_letters d ON d.id = o.id AND d.lane_endpoint = o.lane_endpoint
    )
    SELECT count(*) INTO v_opened FROM opened;
    IF v_opened > 0 THEN
        PERFORM pg_catalog.pg_notify('outbox_bell', '');
    END IF;
    RETURN v_opened;
END
$$;
COMMENT ON FUNCTION outbox.release_key IS 'Public. Opens an ordering key that a dead message holds: outbox.release_key(topic, key, p_why => ''…'').';
