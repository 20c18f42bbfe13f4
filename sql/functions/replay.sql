-- Replays one message, by id, from its dead letter; with p_delivered, from the archive of what was delivered. With several
-- endpoints, all that died (or all that were delivered); p_endpoint names one of them.
--
-- See outbox.revive for what becomes of attempts, order and key. p_new_key sends it under a new id: to its receiver it is another
-- message. p_why and p_by are kept in the history.
--
-- Returns ids of the messages that are pending now, one for each endpoint (new ones with p_new_key), and pending: how many were
-- not replayed because they are pending already. Neither: there is nothing of this id to replay.
CREATE OR REPLACE FUNCTION outbox.replay(
    p_id uuid, p_endpoint text DEFAULT NULL, p_delivered boolean DEFAULT false, p_new_key boolean DEFAULT false,
    p_why text DEFAULT NULL, p_by text DEFAULT current_user,
    OUT ids uuid[], OUT pending integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_lanes       text[];
    v_seqs        bigint[];
    v_generations integer[];
BEGIN
    -- What follows from a step is its saga's affair.
    IF EXISTS (SELECT FROM outbox.dead_letters d WHERE d.id = p_id AND d.step IS NOT NULL)
       OR p_delivered AND EXISTS (SELECT FROM outbox.delivered d WHERE d.id = p_id AND d.step IS NOT NULL)
    THEN
        RAISE EXCEPTION 'message % is a step of a saga', p_id USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Use outbox.resume_saga or outbox.rerun_saga with the saga''s id.';
    END IF;
    IF p_delivered THEN
        SELECT coalesce(array_agg(d.lane_endpoint), '{}'), array_agg(d.seq), array_agg(d.generation)
          INTO v_lanes, v_seqs, v_generations
          FROM (SELECT DISTINCT ON (d.lane_endpoint) d.lane_endpoint, d.seq, d.generation
                  FROM outbox.delivered d
                 WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint)
                   AND NOT EXISTS (SELECT FROM outbox.dead_letters o WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint)
                 ORDER BY d.lane_endpoint, d.delivered_at DESC) d;
    ELSE
        SELECT coalesce(array_agg(d.lane_endpoint ORDER BY d.seq), '{}'), array_agg(d.seq ORDER BY d.seq),
               array_agg(d.generation ORDER BY d.seq)
          INTO v_lanes, v_seqs, v_generations
          FROM outbox.dead_letters d
         WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint);
    END IF;
    SELECT r.new_ids INTO ids
      FROM outbox.revive(CASE WHEN p_delivered THEN 'delivered' ELSE 'dead' END,
                         array_fill(p_id, ARRAY[cardinality(v_lanes)]), v_lanes, v_seqs, v_generations, p_new_key, p_why, p_by) r;
    pending := cardinality(v_lanes) - cardinality(ids);
    IF cardinality(v_lanes) = 0 THEN
        -- Somebody has done it before.
        pending := (SELECT count(*) FROM outbox.messages m
                     WHERE m.id = p_id AND (p_endpoint IS NULL OR m.endpoint IN (p_endpoint, '')));
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.replay IS 'Public. Sends a dead or delivered message again: SELECT * FROM outbox.replay(id, p_why => ''…'').';
