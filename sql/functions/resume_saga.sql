-- Goes on with a parked saga, from the step at which it stands: that is sent again with all its attempts, under the same key, or with
-- p_new_key under another one, which to its participant is another request. p_why and p_by are kept.
--
-- Returns the status that it has now: running or compensating. Raises where it is not parked.
CREATE OR REPLACE FUNCTION outbox.resume_saga(
    p_id uuid, p_new_key boolean DEFAULT false, p_why text DEFAULT NULL, p_by text DEFAULT current_user
) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_saga outbox.sagas;
    v_generation integer;
    v_token  text;
BEGIN
    v_saga := outbox.parked_saga(p_id);
    SELECT d.step ->> 'token' INTO v_token FROM outbox.dead_letters d WHERE d.id = v_saga.message;
    v_generation := outbox.end_parked(v_saga.message, 'replayed', p_why, p_by);
    UPDATE outbox.sagas s
       SET status = CASE s.phase WHEN 'do' THEN 'running' ELSE 'compensating' END,
           message = CASE WHEN p_new_key THEN gen_random_uuid() ELSE s.message END,
           -- Under its old key it may be done.
           unsure = CASE WHEN p_new_key AND s.phase = 'do' AND s.trail -> -1 ->> 'event' = 'unknown'
                         THEN s.unsure || (s.steps -> s.at_step ->> 'name') ELSE s.unsure END,
           trail = s.trail || jsonb_strip_nulls(jsonb_build_object(
               'generation', s.generation, 'step', s.steps -> s.at_step -> 'name', 'phase', s.phase, 'message', s.message,
               'event', CASE WHEN p_new_key THEN 'resume_with_new_key' ELSE 'resume' END, 'at', clock_timestamp(), 'why', p_why, 'by', p_by))
     WHERE s.id = p_id
    RETURNING * INTO v_saga;
    PERFORM outbox.send_step(p_id, 0, CASE WHEN p_new_key THEN 0 ELSE v_generation + 1 END);
    IF v_token IS NOT NULL AND NOT p_new_key THEN
        -- Its participant may have taken it on, and answers by the token that it has.
        UPDATE outbox.messages m SET step = m.step || jsonb_build_object('token', v_token)
         WHERE m.id = v_saga.message AND m.endpoint = v_saga.steps -> v_saga.at_step ->> 'to';
    END IF;
    RETURN v_saga.status;
END
$$;
COMMENT ON FUNCTION outbox.resume_saga IS 'Public. Goes on with a parked saga: outbox.resume_saga(id, p_why => ''…'').';
