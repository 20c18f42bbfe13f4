-- Begins sagas that are new, and turns back those that are to go back.
--
-- A new one begins when it has a plan: its own, or the one that the caller's configuration has under its name, which is written into the
-- row, so that a later configuration does not change what has begun. One that was cancelled while it was in flight, or whose deadline
-- is over, goes back when nothing of it is in flight, see outbox.turn_back; a parked one, too. Where there is no way back any more, that
-- is written down, and it goes on.
--
-- Parameters: plans = the configuration's, an object of arrays of steps by name; limit = sagas of each kind at most.
-- Returns begun and back: how many there were.
CREATE OR REPLACE FUNCTION outbox.tend_sagas(p_plans jsonb, p_limit integer, OUT begun integer, OUT back integer)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_new uuid[];
    v_back record;
    r     record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.tend_sagas needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    back := 0;
    v_new := ARRAY(SELECT s.id FROM outbox.sagas s
                    WHERE s.status = 'new' AND s.steps IS NOT NULL
                    ORDER BY s.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    FOR r IN SELECT p.name FROM jsonb_object_keys(p_plans) AS p (name) LOOP
        EXIT WHEN cardinality(v_new) >= p_limit;
        v_new := v_new || ARRAY(SELECT s.id FROM outbox.sagas s
                                 WHERE s.status = 'new' AND s.steps IS NULL AND s.name = r.name
                                 ORDER BY s.created_at LIMIT p_limit - cardinality(v_new) FOR UPDATE SKIP LOCKED);
    END LOOP;
    UPDATE outbox.sagas s
       SET status = 'running', steps = coalesce(s.steps, p_plans -> s.name), message = gen_random_uuid()
     WHERE s.id = ANY (v_new) AND (s.deadline_at > v_now) IS NOT FALSE;
    -- Too late before it began: nothing was done, nothing is undone.
    UPDATE outbox.sagas s
       SET status = 'compensated', finished_at = v_now, error = 'its deadline was over before it began'
     WHERE s.id = ANY (v_new) AND s.status = 'new';
    PERFORM outbox.send_step(s.id) FROM outbox.sagas s WHERE s.id = ANY (v_new) AND s.status = 'running';
    begun := cardinality(v_new);

    FOR r IN
        SELECT c.id, c.error
          FROM (SELECT s.id, s.message, s.error FROM outbox.sagas s WHERE s.status = 'running' AND s.wanted = 'back'
                UNION ALL
                SELECT s.id, s.message, 'its deadline is over' FROM outbox.sagas s
                 WHERE s.status IN ('running', 'parked') AND s.phase = 'do' AND s.wanted IS NULL AND s.deadline_at <= v_now) c
          LEFT JOIN outbox.messages m ON m.id = c.message
         -- What is in flight must not stand before what is not.
         WHERE NOT EXISTS (SELECT FROM outbox.leases l
                            WHERE l.topic = m.topic AND l.lane_endpoint = m.endpoint AND m.id = ANY (l.ids))
         LIMIT p_limit
    LOOP
        v_back := outbox.turn_back(r.id, r.error);
        IF v_back.too_late THEN
            UPDATE outbox.sagas s SET wanted = 'too_late' WHERE s.id = r.id;
        ELSIF v_back.status IS NOT NULL THEN
            back := back + 1;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.tend_sagas IS 'Private. Begins sagas that are new, and turns back those that are to go back.';
