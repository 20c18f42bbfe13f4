-- Tells a saga what became of the step that it is at, and does what follows: the one place where a saga moves.
--
-- Locks the saga's row; the message of the step, if there is one, was locked before, here as everywhere. See outbox.next_step for
-- events and rules. p_output = what a step that is done answered, p_error = what one that is not said, p_why and p_by = of an operator;
-- p_delay = seconds that an undo of a step with an unknown outcome waits.
-- Returns the status that the saga has now, and to = the endpoint of the step that it goes on with, NULL if it does not. A NULL status:
-- this changes nothing, there is no way back (or no such saga).
CREATE OR REPLACE FUNCTION outbox.move_saga(
    p_saga uuid, p_event text, p_output json DEFAULT NULL, p_error text DEFAULT NULL, p_delay double precision DEFAULT 0,
    p_why text DEFAULT NULL, p_by text DEFAULT NULL,
    OUT status text, OUT endpoint text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_saga outbox.sagas;
    v_name text;
    v_next record;
    v_failed boolean := p_event IN ('refused', 'unknown');
    v_back boolean;
BEGIN
    SELECT * INTO v_saga FROM outbox.sagas s WHERE s.id = p_saga FOR UPDATE;
    v_name := v_saga.steps -> v_saga.at_step ->> 'name';
    IF v_saga.phase = 'do' AND p_event = 'done' THEN
        -- Member by member: as json, what was answered stays as it was written.
        v_saga.outputs := (
            SELECT json_object_agg(o.key, o.value)
              FROM (SELECT o.key, o.value FROM json_each(v_saga.outputs) AS o (key, value) WHERE o.key <> v_name
                    UNION ALL
                    SELECT v_name, p_output) o);
        v_saga.unsure := array_remove(v_saga.unsure, v_name);
    END IF;
    IF v_saga.phase = 'do' AND p_event = 'skip' AND v_saga.trail -> -1 ->> 'event' = 'unknown' THEN
        v_saga.unsure := v_saga.unsure || v_name;
    END IF;
    v_back := v_saga.wanted = 'back' OR v_saga.deadline_at <= v_now;
    v_next := outbox.next_step(v_saga.steps, ARRAY(SELECT json_object_keys(v_saga.outputs)), v_saga.unsure, v_saga.phase, v_saga.at_step, p_event,
                               coalesce(v_back, false));
    status := v_next.status;
    IF status IS NULL THEN RETURN; END IF;
    UPDATE outbox.sagas s
       SET status = v_next.status, phase = v_next.phase, at_step = v_next.at_step, forward = v_next.forward, outputs = v_saga.outputs,
           unsure = v_saga.unsure,
           message = CASE WHEN v_next.status IN ('running', 'compensating') THEN gen_random_uuid()
                          WHEN v_next.status = 'parked' THEN s.message END,
           finished_at = CASE WHEN v_next.status IN ('succeeded', 'compensated') THEN v_now END,
           wanted = CASE WHEN v_next.status = 'running' THEN s.wanted END,
           failed_step = CASE WHEN v_failed OR p_event LIKE 'back%' THEN v_name WHEN v_next.status = 'succeeded' THEN NULL ELSE s.failed_step END,
           error = CASE WHEN v_failed THEN p_error
                        WHEN v_next.phase = 'undo' AND s.phase = 'do' OR p_event LIKE 'back%'
                            THEN coalesce(p_error, s.error, CASE WHEN v_saga.deadline_at <= v_now THEN 'its deadline is over' END)
                        WHEN v_next.status = 'succeeded' THEN NULL
                        ELSE s.error END,
           trail = s.trail || jsonb_strip_nulls(jsonb_build_object(
               'generation', s.generation, 'step', v_name, 'phase', s.phase, 'message', s.message, 'event', p_event, 'at', v_now,
               'error', p_error, 'why', p_why, 'by', p_by))
     WHERE s.id = p_saga;
    IF v_next.status IN ('running', 'compensating') THEN
        endpoint := v_saga.steps -> v_next.at_step ->> 'to';
        PERFORM outbox.send_step(p_saga, CASE WHEN v_next.forward = 'unknown' THEN p_delay ELSE 0 END);
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.move_saga IS 'Private. Tells a saga what became of its step, and does what follows.';
