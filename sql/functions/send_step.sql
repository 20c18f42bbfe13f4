-- Makes the message of the step that a saga is at: the one place where a step becomes a message.
--
-- It is bound for the step's endpoint, under the id that the saga names. p_delay = seconds until it is due, 0 = now; p_generation =
-- how often it was sent before under this id, plus one, so that a late answer to an earlier life can't remove it.
-- An undo says the saga's generation in which the step was asked to be done: its participant knows it by that.
CREATE OR REPLACE FUNCTION outbox.send_step(p_saga uuid, p_delay double precision DEFAULT 0, p_generation integer DEFAULT 0) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    INSERT INTO outbox.messages (id, topic, endpoint, key, headers, payload, due_at, generation, step)
    SELECT s.message, 'saga:' || s.name, p.step ->> 'to', s.key, s.headers,
           CASE s.phase
               WHEN 'do' THEN json_build_object('input', s.input, 'outputs', s.outputs)
               ELSE json_build_object('input', s.input, 'output', s.outputs -> (p.step ->> 'name'), 'outputs', s.outputs) END,
           CASE WHEN p_delay > 0 THEN clock_timestamp() + make_interval(secs => p_delay) END, p_generation,
           jsonb_strip_nulls(jsonb_build_object(
               'saga', s.id, 'name', s.name, 'step', p.step -> 'name', 'phase', s.phase, 'path', p.step -> s.phase,
               'generation', CASE s.phase WHEN 'do' THEN s.generation ELSE coalesce((
                   SELECT max((t.line ->> 'generation')::integer) FROM jsonb_array_elements(s.trail) AS t (line)
                    WHERE t.line ->> 'step' = p.step ->> 'name' AND t.line ->> 'phase' = 'do' AND t.line ->> 'message' IS NOT NULL),
                   s.generation) END,
               'deadline', s.deadline_at, 'forward', s.forward, 'timeout', p.step -> 'timeout', 'async', p.step -> 'async',
               'lapse', p.step -> 'lapse',
               'token', CASE WHEN (p.step ->> 'async')::boolean THEN gen_random_uuid() END,
               'retry', CASE s.phase WHEN 'undo' THEN coalesce(p.step -> 'undo_retry', p.step -> 'retry') ELSE p.step -> 'retry' END))
      FROM outbox.sagas s
     CROSS JOIN LATERAL (SELECT s.steps -> s.at_step) AS p (step)
     WHERE s.id = p_saga;
END
$$;
COMMENT ON FUNCTION outbox.send_step IS 'Private. Makes the message of the step that a saga is at.';
