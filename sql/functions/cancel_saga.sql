-- Wants a saga to go back: what was done is undone, the last first. p_why and p_by are kept.
--
-- While a request of it is in flight it goes back when that has ended: the answer may be that there is no way back any more.
-- Returns the status that it has now: compensating or compensated, or running where it is in flight. Raises where it is past its
-- pivot, goes back already, or is over.
CREATE OR REPLACE FUNCTION outbox.cancel_saga(p_id uuid, p_why text DEFAULT NULL, p_by text DEFAULT current_user) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_saga  outbox.sagas;
    v_back  record;
    v_error text := concat_ws(': ', 'cancelled by ' || p_by, p_why);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.cancel_saga needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    -- A step may be settled, or claimed, between two looks.
    LOOP
        SELECT * INTO v_saga FROM outbox.sagas s WHERE s.id = p_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no saga %', p_id USING ERRCODE = 'no_data_found';
        ELSIF v_saga.status NOT IN ('new', 'running', 'parked') OR v_saga.phase = 'undo' THEN
            RAISE EXCEPTION 'saga % can''t be cancelled: it is %', p_id,
                CASE WHEN v_saga.status = 'parked' THEN 'parked on its way back' ELSE v_saga.status END
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        v_back := outbox.turn_back(p_id, v_error, p_why, p_by);
        IF v_back.too_late THEN
            RAISE EXCEPTION 'saga % can''t be cancelled: it is past its pivot', p_id USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'What follows a pivot can be resumed or skipped.';
        ELSIF v_back.status IS NOT NULL THEN
            PERFORM pg_catalog.pg_notify('outbox_bell', '');
            RETURN v_back.status;
        END IF;
        -- In flight. A settle that ends it from now on sees this.
        UPDATE outbox.sagas s SET wanted = 'back', error = v_error
         WHERE s.id = p_id AND s.status = 'running' AND s.message = v_saga.message;
        IF FOUND THEN
            PERFORM pg_catalog.pg_notify('outbox_bell', '');
            RETURN 'running';
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.cancel_saga IS 'Public. Turns a saga back: outbox.cancel_saga(id, p_why => ''…'').';
