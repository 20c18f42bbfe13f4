-- Runs a saga again from a step, as a new generation: that step and those behind it are sent under new keys, with what the steps before
-- it answered, and with p_input in the place of the input if it is given. What was before stays in its trail.
--
-- It must be parked on its way forward, at that step or behind it, or have succeeded; one that went back, or is parked on its way back, can
-- only be run again from its first step. Its deadline is as far away again as it was at its beginning.
-- p_step = the step's name, NULL = the first. p_why and p_by are kept. Returns the generation.
CREATE OR REPLACE FUNCTION outbox.rerun_saga(
    p_id uuid, p_step text DEFAULT NULL, p_input json DEFAULT NULL, p_why text DEFAULT NULL, p_by text DEFAULT current_user
) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_saga outbox.sagas;
    v_from integer := 0;
    v_kept text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.rerun_saga needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    SELECT * INTO v_saga FROM outbox.sagas s WHERE s.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no saga %', p_id USING ERRCODE = 'no_data_found';
    ELSIF v_saga.status NOT IN ('parked', 'succeeded', 'compensated') OR v_saga.steps IS NULL THEN
        RAISE EXCEPTION 'saga % can''t be run again: it is %', p_id,
            CASE WHEN v_saga.steps IS NULL THEN 'without a plan' ELSE v_saga.status END
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF p_step IS NOT NULL THEN
        SELECT s.n - 1 INTO v_from
          FROM jsonb_array_elements(v_saga.steps) WITH ORDINALITY AS s (step, n) WHERE s.step ->> 'name' = p_step;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'saga % has no step %', p_id, p_step USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF v_from > 0 AND (v_saga.status = 'compensated' OR v_saga.phase = 'undo') THEN
        RAISE EXCEPTION 'saga % went back: it can be run again from its first step only', p_id
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF v_from > v_saga.at_step THEN
        RAISE EXCEPTION 'saga % has not reached step % yet', p_id, p_step USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM outbox.end_parked(v_saga.message, 'discarded', p_why, p_by);
    v_kept := ARRAY(SELECT s.step ->> 'name' FROM jsonb_array_elements(v_saga.steps) WITH ORDINALITY AS s (step, n) WHERE s.n <= v_from);
    UPDATE outbox.sagas s
       SET status = 'running', phase = 'do', at_step = v_from, generation = s.generation + 1, message = gen_random_uuid(),
           input = coalesce(p_input, s.input), forward = NULL, wanted = NULL, failed_step = NULL, error = NULL, finished_at = NULL,
           deadline_at = clock_timestamp() + (s.deadline_at - s.created_at),
           outputs = coalesce((SELECT json_object_agg(o.key, o.value) FROM json_each(s.outputs) AS o (key, value)
                                WHERE o.key = ANY (v_kept)), '{}'),
           -- What an earlier generation did, or may have done, from there on is undone should this one go back.
           unsure = CASE WHEN s.status = 'compensated' THEN '{}' ELSE s.unsure || ARRAY(
               SELECT o.key FROM json_object_keys(s.outputs) AS o (key) WHERE o.key <> ALL (v_kept || s.unsure)
               UNION ALL
               SELECT s.steps -> s.at_step ->> 'name'
                WHERE s.status = 'parked' AND s.phase = 'do' AND s.trail -> -1 ->> 'event' = 'unknown'
                  AND s.steps -> s.at_step ->> 'name' <> ALL (s.unsure)) END,
           trail = s.trail || jsonb_strip_nulls(jsonb_build_object(
               'generation', s.generation + 1, 'step', s.steps -> v_from -> 'name', 'phase', 'do', 'event', 'rerun',
               'at', clock_timestamp(), 'input_before', CASE WHEN p_input IS NOT NULL THEN s.input::text END, 'why', p_why, 'by', p_by))
     WHERE s.id = p_id;
    PERFORM outbox.send_step(p_id);
    RETURN v_saga.generation + 1;
END
$$;
COMMENT ON FUNCTION outbox.rerun_saga IS 'Public. Runs a saga again from a step: outbox.rerun_saga(id, ''step'', p_why => ''…'').';
