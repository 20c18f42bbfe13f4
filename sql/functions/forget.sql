-- Removes dead letters for good, and opens the keys that they hold. Private: outbox.discard and outbox.run_job call it.
--
-- Guard: takes the lanes' locks, as a claim does, so that a key opens between two claims and not within one. What is not any more what
-- the caller saw (seq and generation: it was replayed and died again) is left alone.
--
-- Parameters: ids, lanes' endpoints, seqs and generations, in step, no (id, lane) twice; who and why, for the history. Returns how many.
CREATE OR REPLACE FUNCTION outbox.forget(
    p_ids uuid[], p_lanes text[], p_seqs bigint[], p_generations integer[], p_why text, p_by text
) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_discarded integer;
    v_opened    integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a discard needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    PERFORM outbox.ensure_partitions();
    PERFORM FROM outbox.lanes l
      WHERE (l.topic, l.endpoint) IN (
                SELECT d.topic, d.lane_endpoint
                  FROM unnest(p_ids, p_lanes) AS u (id, lane)
                  JOIN outbox.dead_letters d ON d.id = u.id AND d.lane_endpoint = u.lane)
      ORDER BY l.topic, l.endpoint FOR UPDATE;
    WITH gone AS (
        DELETE FROM outbox.dead_letters d
         USING unnest(p_ids, p_lanes, p_seqs, p_generations) AS u (id, lane, seq, generation)
         WHERE d.id = u.id AND d.lane_endpoint = u.lane AND d.seq = u.seq AND d.generation = u.generation
           -- What follows from a step is its saga's affair.
           AND d.step IS NULL
        RETURNING d.*
    ), opened AS (
        DELETE FROM outbox.held_keys h
         USING gone g
         WHERE h.topic = g.topic AND h.lane_endpoint = g.lane_endpoint AND h.key = g.key AND h.id = g.id
        RETURNING 1
    ), told AS (
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome,
            settlement, reason, relay)
        SELECT clock_timestamp(), interval '0', g.id, g.seq, g.generation, 0, g.topic, g.endpoint, g.key, 'discarded',
               'discarded', p_why, p_by
          FROM gone g
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM opened) INTO v_discarded, v_opened;
    IF v_opened > 0 THEN
        -- What waited behind it may go: whoever sleeps is woken for that.
        PERFORM pg_catalog.pg_notify('outbox_bell', '');
    END IF;
    RETURN v_discarded;
END
$$;
COMMENT ON FUNCTION outbox.forget IS 'Private. Removes dead letters, and opens the keys that they hold.';
