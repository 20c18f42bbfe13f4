-- The whole life of a saga, as one JSON object: the row (id, name, key, status, input, outputs, trail, …), step (the name of the one that
-- it is at), why (of the message of that step, see outbox.why), and attempts (of all its steps, with step, phase and saga generation, the
-- oldest first, not more than a thousand). NULL: there is no such saga.
CREATE OR REPLACE FUNCTION outbox.show_saga(p_id uuid) RETURNS json
LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT json_build_object(
               'id', s.id, 'name', s.name, 'key', s.key, 'status', s.status, 'step', s.steps -> s.at_step -> 'name', 'phase', s.phase,
               'failed_step', s.failed_step, 'error', s.error, 'generation', s.generation, 'created_at', s.created_at,
               'deadline_at', s.deadline_at, 'finished_at', s.finished_at, 'message', s.message, 'input', s.input, 'steps', s.steps,
               'headers', s.headers, 'outputs', s.outputs, 'trail', s.trail,
               'why', coalesce((SELECT json_agg(w) FROM outbox.why(s.message) w), '[]'),
               'attempts', coalesce((
                   SELECT json_agg(a ORDER BY a.started_at, a.attempt)
                     FROM (SELECT m.step, m.phase, m.saga_generation, a.*
                             FROM (SELECT t.line ->> 'message' AS message, min(t.line ->> 'step') AS step, min(t.line ->> 'phase') AS phase,
                                          min(t.line ->> 'generation')::integer AS saga_generation
                                     FROM (SELECT jsonb_array_elements(s.trail) AS line
                                           UNION ALL
                                           SELECT jsonb_build_object('message', s.message, 'step', s.steps -> s.at_step -> 'name',
                                                                     'phase', s.phase, 'generation', s.generation)) t
                                    WHERE t.line ->> 'message' IS NOT NULL
                                    GROUP BY 1) m
                            CROSS JOIN LATERAL (SELECT a.* FROM outbox.attempts a WHERE a.id = m.message::uuid
                                                 ORDER BY a.started_at LIMIT 1000) a
                            ORDER BY a.started_at LIMIT 1000) a), '[]'))
      FROM outbox.sagas s WHERE s.id = p_id;
$$;
COMMENT ON FUNCTION outbox.show_saga IS 'Public. The whole life of a saga as JSON: SELECT outbox.show_saga(id).';
