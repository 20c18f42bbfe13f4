-- Goes on with a parked saga without the step at which it stands: on the way forward with the next one, which does not get its output;
-- on the way back with the undo of the one before. p_why and p_by are kept.
--
-- Where nobody knows whether a step that is skipped was done, it is undone should the saga go back later.
-- Returns the status that it has now. Raises where it is not parked.
CREATE OR REPLACE FUNCTION outbox.skip_step(p_id uuid, p_why text DEFAULT NULL, p_by text DEFAULT current_user) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_saga outbox.sagas;
BEGIN
    v_saga := outbox.parked_saga(p_id);
    PERFORM outbox.end_parked(v_saga.message, 'discarded', p_why, p_by);
    RETURN (outbox.move_saga(p_id, 'skip', p_why => p_why, p_by => p_by)).status;
END
$$;
COMMENT ON FUNCTION outbox.skip_step IS 'Public. Goes on with a parked saga without the step that it is at: outbox.skip_step(id, p_why => ''…'').';
