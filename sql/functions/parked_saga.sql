-- Locks a saga that an operator wants something of that only a parked one can do, and returns it; raises where it is not parked.
CREATE OR REPLACE FUNCTION outbox.parked_saga(p_id uuid) RETURNS outbox.sagas
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_saga outbox.sagas;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'an operator''s verb needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    SELECT * INTO v_saga FROM outbox.sagas s WHERE s.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no saga %', p_id USING ERRCODE = 'no_data_found';
    ELSIF v_saga.status <> 'parked' THEN
        RAISE EXCEPTION 'saga % is not parked: it is %', p_id, v_saga.status USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN v_saga;
END
$$;
COMMENT ON FUNCTION outbox.parked_saga IS 'Private. Locks a parked saga.';
