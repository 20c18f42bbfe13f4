-- Removes the dead letters of a message for good, by id; p_endpoint names one of several. A key that one of them holds opens: what
-- waited behind it goes on without it. p_why and p_by are kept in the history.
--
-- Returns how many there were. Raises for a step of a saga: what follows from that is the saga's affair.
CREATE OR REPLACE FUNCTION outbox.discard(
    p_id uuid, p_endpoint text DEFAULT NULL, p_why text DEFAULT NULL, p_by text DEFAULT current_user
) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM outbox.dead_letters d WHERE d.id = p_id AND d.step IS NOT NULL) THEN
        RAISE EXCEPTION 'message % is a step of a saga', p_id USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Use outbox.skip_step or outbox.cancel_saga with the saga''s id.';
    END IF;
    RETURN (SELECT outbox.forget(coalesce(array_agg(d.id), '{}'), coalesce(array_agg(d.lane_endpoint), '{}'),
                                 coalesce(array_agg(d.seq), '{}'), coalesce(array_agg(d.generation), '{}'), p_why, p_by)
              FROM outbox.dead_letters d
             WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint));
END
$$;
COMMENT ON FUNCTION outbox.discard IS 'Public. Removes a dead letter for good: outbox.discard(id, p_why => ''…'').';
