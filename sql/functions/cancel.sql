-- Takes a pending message back, by id: it is neither delivered nor kept. With several endpoints, all that is still pending.
--
-- Takes the lane's lock, as a claim does, so it can't meet one half-way; it waits for a claim, which is short. A message
-- that is on its way can't be taken back. What followed a cancelled head under its key can go on at once: the head rule
-- looks at the rows that are there.
--
-- p_why and p_by are kept in the history.
--
-- Returns cancelled (rows that were removed) and in_flight (rows that a relay holds: try again later).
CREATE OR REPLACE FUNCTION outbox.cancel(
    p_id uuid, p_why text DEFAULT NULL, p_by text DEFAULT current_user,
    OUT cancelled integer, OUT in_flight integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_locked outbox.lanes[] := '{}';
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.cancel needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    IF EXISTS (SELECT FROM outbox.messages m WHERE m.id = p_id AND m.step IS NOT NULL) THEN
        RAISE EXCEPTION 'message % is a step of a saga', p_id USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Use outbox.cancel_saga with the saga''s id.';
    END IF;
    PERFORM outbox.ensure_partitions();
    -- Fan-out may move it while its lane is waited for: until all lanes that it is in are locked.
    LOOP
        INSERT INTO outbox.lanes (topic, endpoint)
        SELECT m.topic, m.endpoint FROM outbox.messages m WHERE m.id = p_id ORDER BY m.topic, m.endpoint
        ON CONFLICT (topic, endpoint) DO NOTHING;
        v_locked := v_locked || ARRAY(
            SELECT l
              FROM outbox.lanes l
             WHERE (l.topic, l.endpoint) IN (SELECT m.topic, m.endpoint FROM outbox.messages m WHERE m.id = p_id)
             ORDER BY l.topic, l.endpoint FOR UPDATE);
        EXIT WHEN NOT EXISTS (
            SELECT FROM outbox.messages m
             WHERE m.id = p_id AND (m.topic, m.endpoint) NOT IN (SELECT v.topic, v.endpoint FROM unnest(v_locked) v));
    END LOOP;
    -- Under the locks, in a new snapshot: what is leased now stays leased.
    SELECT count(*) INTO in_flight
      FROM outbox.messages m
     WHERE m.id = p_id
       AND EXISTS (SELECT FROM outbox.leases l
                    WHERE l.topic = m.topic AND l.lane_endpoint = m.endpoint AND p_id = ANY (l.ids));
    WITH gone AS (
        DELETE FROM outbox.messages m
         WHERE m.id = p_id
           AND NOT EXISTS (SELECT FROM outbox.leases l
                            WHERE l.topic = m.topic AND l.lane_endpoint = m.endpoint AND p_id = ANY (l.ids))
        RETURNING m.*
    ), told AS (
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome,
            settlement, reason, relay)
        SELECT clock_timestamp(), interval '0', g.id, g.seq, g.generation, 0, g.topic, coalesce(nullif(g.endpoint, ''), g.sent_to, ''),
               g.key, 'cancelled', 'cancelled', p_why, p_by
          FROM gone g
    )
    SELECT count(*) INTO cancelled FROM gone;
    IF cancelled > 0 THEN
        PERFORM pg_catalog.pg_notify('outbox_bell', '');
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.cancel IS 'Public. Takes a pending message back: SELECT * FROM outbox.cancel(id).';
