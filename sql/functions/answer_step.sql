-- Takes in what the participant of an asynchronous step says later, by the one-time token that it was given with the request: that the
-- step is done, with its output, or refused, with an error. What follows is as if it had answered so at once.
--
-- Guard: takes the lane's lock, as a claim does, and changes nothing while the same request is on its way once more (its lapse was over).
-- The token goes with the message, so it is good once.
--
-- Parameters: token; refused = a definite no; output = a JSON value or NULL; error. Returns the status that the saga has now; busy: the
-- request is on its way, say it again a little later; NULL: no step waits for this token.
CREATE OR REPLACE FUNCTION outbox.answer_step(p_token text, p_refused boolean, p_output text, p_error text) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_row    outbox.messages;
    v_now    timestamptz;
    v_parked uuid[];
    v_settlement text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.answer_step needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    SELECT * INTO v_row FROM outbox.messages m WHERE m.step ->> 'token' = p_token;
    IF NOT FOUND THEN RETURN NULL; END IF;
    PERFORM outbox.ensure_partitions();
    INSERT INTO outbox.lanes (topic, endpoint) VALUES (v_row.topic, v_row.endpoint) ON CONFLICT (topic, endpoint) DO NOTHING;
    PERFORM FROM outbox.lanes l WHERE l.topic = v_row.topic AND l.endpoint = v_row.endpoint FOR UPDATE;
    -- Under the lock, in new snapshots.
    IF EXISTS (SELECT FROM outbox.leases l
                WHERE l.topic = v_row.topic AND l.lane_endpoint = v_row.endpoint AND v_row.id = ANY (l.ids))
    THEN RETURN 'busy'; END IF;
    SELECT * INTO v_row FROM outbox.messages m WHERE m.id = v_row.id AND m.endpoint = v_row.endpoint FOR UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    v_now := clock_timestamp();
    SELECT a.parked INTO v_parked
      FROM outbox.advance(ARRAY[v_row.id], ARRAY[CASE WHEN p_refused THEN 'refused' ELSE 'done' END], ARRAY[p_output],
                          ARRAY[CASE WHEN p_refused THEN coalesce(p_error, 'refused by its callback') END]) a;
    IF v_row.id = ANY (v_parked) THEN
        v_settlement := 'dead';
        PERFORM outbox.bury(v_row.endpoint, ARRAY[v_row.id], ARRAY[v_row.id], ARRAY[v_row.endpoint], ARRAY['rejected'], NULL,
                            ARRAY[p_error], NULL, NULL, NULL, v_now);
    ELSE
        v_settlement := CASE WHEN p_refused THEN 'undo' ELSE 'delivered' END;
        DELETE FROM outbox.messages m WHERE m.id = v_row.id AND m.endpoint = v_row.endpoint;
    END IF;
    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome, settlement, reason,
        relay, error)
    VALUES (v_now, interval '0', v_row.id, v_row.seq, v_row.generation, v_row.attempts + v_row.lost + v_row.throttled, v_row.topic,
            v_row.endpoint, v_row.key, CASE WHEN p_refused THEN 'rejected' ELSE 'success' END, v_settlement,
            CASE WHEN p_refused THEN 'rejected' END, 'callback', p_error);
    -- The next step may lie in a lane that nobody looks into just now.
    PERFORM pg_catalog.pg_notify('outbox_bell', '');
    RETURN (SELECT s.status FROM outbox.sagas s WHERE s.id = (v_row.step ->> 'saga')::uuid);
END
$$;
COMMENT ON FUNCTION outbox.answer_step IS 'Private. Takes in what the participant of an asynchronous step says later.';
