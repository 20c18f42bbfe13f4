-- Replays one message, by id, from its dead letter, or where it has none from the archive of what was delivered. With several
-- endpoints, all that died, or else all that was delivered; p_endpoint names one of them.
--
-- See outbox.revive for what becomes of attempts, order and key. p_new_key sends it under a new id: to its receiver it is another
-- message. p_why and p_by are kept in the history.
--
-- Returns ids of the messages that are pending now, one for each endpoint (new ones with p_new_key), and pending: how many were
-- not replayed because they are pending already. Neither: there is nothing of this id to replay.
CREATE OR REPLACE FUNCTION outbox.replay(
    p_id uuid, p_endpoint text DEFAULT NULL, p_new_key boolean DEFAULT false,
    p_why text DEFAULT NULL, p_by text DEFAULT current_user,
    OUT ids uuid[], OUT pending integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_source text := 'dead';
    v_lanes  text[];
BEGIN
    v_lanes := ARRAY(SELECT d.lane_endpoint FROM outbox.dead_letters d
                      WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint));
    IF cardinality(v_lanes) = 0 THEN
        v_source := 'delivered';
        v_lanes := ARRAY(SELECT DISTINCT d.lane_endpoint FROM outbox.delivered d
                          WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint));
    END IF;
    SELECT r.new_ids INTO ids
      FROM outbox.revive(v_source, array_fill(p_id, ARRAY[cardinality(v_lanes)]), v_lanes, p_new_key, p_why, p_by) r;
    pending := cardinality(v_lanes) - cardinality(ids);
END
$$;
COMMENT ON FUNCTION outbox.replay IS 'Public. Sends a dead or delivered message again: SELECT * FROM outbox.replay(id, p_why => ''…'').';
