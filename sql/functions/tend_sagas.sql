-- Begins sagas that are new, and turns back those that are to go back.
--
-- A new one begins when it has a plan: its own, or the one that the caller's configuration has under its name, which is written into the
-- row, so that a later configuration does not change what has begun. One that is to go back does so when nothing of it is in flight:
-- its lane is locked, so that no claim can take its message, and never waited for; what is leased is left to the settle that ends it.
-- Where there is no way back any more, that is written down, and it goes on.
-- Locks: new sagas alone; else the lane, the message, the saga, in the order of a settle.
--
-- Parameters: plans = the configuration's, an object of arrays of steps by name; limit = sagas of each kind at most.
-- Returns begun and back: how many there were.
CREATE OR REPLACE FUNCTION outbox.tend_sagas(p_plans jsonb, p_limit integer, OUT begun integer, OUT back integer)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_new   uuid[];
    v_row   outbox.messages;
    r       record;
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
     WHERE s.id = ANY (v_new) AND s.wanted IS NULL AND (s.deadline_at > v_now) IS NOT FALSE;
    -- What was cancelled, or late, before it began: nothing was done, nothing is undone.
    UPDATE outbox.sagas s
       SET status = 'compensated', wanted = NULL, finished_at = v_now, error = coalesce(s.error, 'its deadline was over before it began')
     WHERE s.id = ANY (v_new) AND s.status = 'new';
    PERFORM outbox.send_step(s.id) FROM outbox.sagas s WHERE s.id = ANY (v_new) AND s.status = 'running';
    begun := cardinality(v_new);

    FOR r IN
        SELECT c.id, c.message, m.topic, m.endpoint
          FROM (SELECT s.id, s.message FROM outbox.sagas s WHERE s.status = 'running' AND s.wanted = 'back'
                UNION ALL
                SELECT s.id, s.message FROM outbox.sagas s WHERE s.status = 'running' AND s.wanted IS NULL AND s.deadline_at <= v_now) c
          JOIN outbox.messages m ON m.id = c.message
         -- What is in flight must not stand before what is not.
         WHERE NOT EXISTS (SELECT FROM outbox.leases l
                            WHERE l.topic = m.topic AND l.lane_endpoint = m.endpoint AND m.id = ANY (l.ids))
         LIMIT p_limit
    LOOP
        INSERT INTO outbox.lanes (topic, endpoint) VALUES (r.topic, r.endpoint) ON CONFLICT (topic, endpoint) DO NOTHING;
        PERFORM FROM outbox.lanes l WHERE l.topic = r.topic AND l.endpoint = r.endpoint FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        -- Under the lock, in new snapshots: what is leased now stays leased.
        CONTINUE WHEN EXISTS (SELECT FROM outbox.leases l
                               WHERE l.topic = r.topic AND l.lane_endpoint = r.endpoint AND r.message = ANY (l.ids));
        SELECT * INTO v_row FROM outbox.messages m WHERE m.id = r.message AND m.endpoint = r.endpoint FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM outbox.sagas s WHERE s.id = r.id AND s.message = r.message AND s.status = 'running' FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        IF (outbox.move_saga(r.id,
               CASE WHEN v_row.attempts + v_row.lost + v_row.throttled + v_row.generation > 0 THEN 'back_unknown' ELSE 'back_unsent' END,
               p_delay => CASE WHEN v_row.lost > 0 THEN coalesce((v_row.step ->> 'timeout')::double precision,
                   (SELECT e.timeout FROM outbox.endpoints e WHERE e.endpoint = r.endpoint), 60) ELSE 0 END)).status IS NULL
        THEN
            UPDATE outbox.sagas s SET wanted = 'too_late' WHERE s.id = r.id;
        ELSE
            DELETE FROM outbox.messages m WHERE m.id = r.message AND m.endpoint = r.endpoint;
            back := back + 1;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.tend_sagas IS 'Private. Begins sagas that are new, and turns back those that are to go back.';
