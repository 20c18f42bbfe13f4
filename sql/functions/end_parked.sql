-- Takes the dead letter of a parked saga away, whose row the caller has locked, and says so in the history; private: the verbs call it.
-- p_word = what an operator did: replayed, discarded. Returns how often the message was sent before under its id.
CREATE OR REPLACE FUNCTION outbox.end_parked(p_message uuid, p_word text, p_why text, p_by text) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_generation integer;
BEGIN
    PERFORM outbox.ensure_partitions();
    WITH gone AS (
        DELETE FROM outbox.dead_letters d WHERE d.id = p_message RETURNING d.*
    ), told AS (
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome, settlement,
            reason, relay)
        SELECT clock_timestamp(), interval '0', g.id, g.seq, g.generation, 0, g.topic, g.endpoint, g.key, p_word, p_word, p_why, p_by
          FROM gone g
    )
    SELECT g.generation INTO v_generation FROM gone g;
    RETURN coalesce(v_generation, 0);
END
$$;
COMMENT ON FUNCTION outbox.end_parked IS 'Private. Takes the dead letter of a parked saga away.';
