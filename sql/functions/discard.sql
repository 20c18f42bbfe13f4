-- Removes the dead letters of a message for good, by id; p_endpoint names one of several. A key that one of them holds opens: what
-- waited behind it goes on without it. p_why and p_by are kept in the history.
--
-- Returns how many there were.
CREATE OR REPLACE FUNCTION outbox.discard(
    p_id uuid, p_endpoint text DEFAULT NULL, p_why text DEFAULT NULL, p_by text DEFAULT current_user
) RETURNS integer
LANGUAGE sql AS $$
    SELECT outbox.forget(coalesce(array_agg(d.id), '{}'), coalesce(array_agg(d.lane_endpoint), '{}'),
                         coalesce(array_agg(d.seq), '{}'), coalesce(array_agg(d.generation), '{}'), p_why, p_by)
      FROM outbox.dead_letters d
     WHERE d.id = p_id AND (p_endpoint IS NULL OR d.endpoint = p_endpoint);
$$;
COMMENT ON FUNCTION outbox.discard IS 'Public. Removes a dead letter for good: outbox.discard(id, p_why => ''…'').';
