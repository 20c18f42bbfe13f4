-- The whole life of a message, as one JSON object: id, state, why (see outbox.why), pending, dead and delivered (its rows, payload included,
-- one for each endpoint), and attempts (its history, the oldest first, not more than a thousand). NULL: nothing of this id is known.
-- state: pending, else dead, else delivered, of any of its endpoints; gone: cancelled, discarded, or delivered when no history was kept.
--
-- What is aggregated is found by its id, apart (OFFSET 0): from PostgreSQL 16 on an index in the wanted order would be read instead.
-- A payload stands in it as the application wrote it; a body as bytes in hex (bytea).
CREATE OR REPLACE FUNCTION outbox.show(p_id uuid) RETURNS json
LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT json_build_object(
               'id', p_id,
               'state', CASE WHEN json_array_length(s.pending) > 0 THEN 'pending'
                             WHEN json_array_length(s.dead) > 0 THEN 'dead'
                             WHEN json_array_length(s.delivered) > 0 OR s.was_delivered THEN 'delivered'
                             ELSE 'gone' END,
               'why', coalesce((SELECT json_agg(w) FROM outbox.why(p_id) w), '[]'),
               'pending', s.pending, 'dead', s.dead, 'delivered', s.delivered, 'attempts', s.attempts)
      FROM (SELECT coalesce((SELECT json_agg(m ORDER BY m.endpoint)
                               FROM (SELECT m.* FROM outbox.messages m WHERE m.id = p_id OFFSET 0) m), '[]') AS pending,
                   coalesce((SELECT json_agg(d ORDER BY d.lane_endpoint)
                               FROM (SELECT d.* FROM outbox.dead_letters d WHERE d.id = p_id OFFSET 0) d), '[]') AS dead,
                   coalesce((SELECT json_agg(d ORDER BY d.delivered_at)
                               FROM (SELECT d.* FROM outbox.delivered d WHERE d.id = p_id OFFSET 0) d), '[]') AS delivered,
                   coalesce((SELECT json_agg(a ORDER BY a.started_at, a.generation, a.attempt)
                               FROM (SELECT a.* FROM outbox.attempts a WHERE a.id = p_id ORDER BY a.started_at LIMIT 1000) a), '[]') AS attempts,
                   EXISTS (SELECT FROM outbox.attempts a WHERE a.id = p_id AND a.settlement = 'delivered') AS was_delivered) s
     WHERE json_array_length(s.pending) + json_array_length(s.dead) + json_array_length(s.delivered) + json_array_length(s.attempts) > 0;
$$;
COMMENT ON FUNCTION outbox.show IS 'Public. The whole life of a message as JSON: SELECT outbox.show(id).';
