-- What follows for a saga from what became of its step: pure, so that every state and event is a row of a table in the tests.
--
-- It stands here and not in the relay, because a saga may be cancelled, or late, while the answer is on its way: what follows is
-- decided where the saga is locked, in the transaction that settles the step.
--
-- Rules. A definite no at a step undoes what was done before it, the last first; after an outcome that nobody knows the step itself is
-- undone, too. What has no undo, or was never done, is passed over. Once a pivot is done there is no way back, and none is begun
-- while nobody knows whether a pivot without undo is. Where there is no way back, and where a plan has no undo at all (a
-- pipeline), a failure parks the saga until an operator decides, unless it is to go back anyway. So does what ran out of
-- attempts where its step does not say on_exhausted = compensate, and every failed undo.
--
-- Parameters: the plan; done = the names of the steps that were done, with this one if it is; unsure = of those that may
-- be done though that is not known of them now: skipped by an operator, or sent before under another key; phase and at = what was asked of
-- which step; event = done (also: undone), refused (a definite no), unknown (given up on, and nobody knows), skip (an operator says:
-- go on without it), back_unsent and back_unknown (it is to go back, and nothing is in flight: the step was never sent, or was);
-- back = a cancel, or the deadline, wants it to go back.
-- Returns status, phase and step that the saga has now, and forward: of a step that is to be undone, whether it was done
-- (done or unknown). A NULL status: this event changes nothing here, there is no way back.
CREATE OR REPLACE FUNCTION outbox.next_step(
    p_steps jsonb, p_done text[], p_unsure text[], p_phase text, p_at integer, p_event text, p_back boolean,
    OUT status text, OUT phase text, OUT at_step integer, OUT forward text
)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_step    jsonb := p_steps -> p_at;
    v_pivot   boolean := coalesce((v_step ->> 'pivot')::boolean, false);
    v_past    boolean := EXISTS (SELECT FROM jsonb_array_elements(p_steps) WITH ORDINALITY AS s (step, n)
                                  WHERE s.n <= p_at AND (s.step ->> 'pivot')::boolean);
    v_unknown boolean := p_event IN ('unknown', 'back_unknown');
    v_from    integer;      -- the last step that may have to be undone
BEGIN
    phase := p_phase;
    at_step := p_at;
    IF p_phase = 'undo' THEN
        IF p_event IN ('refused', 'unknown') THEN status := 'parked'; RETURN; END IF;
        IF p_event IN ('back_unsent', 'back_unknown') THEN RETURN; END IF;
        v_from := p_at - 1;
        v_unknown := false;
    ELSIF p_event IN ('done', 'skip') THEN
        -- A pivot that was skipped may be done.
        IF p_back AND NOT v_past AND NOT (v_pivot AND (p_event = 'done' OR NOT v_step ? 'undo')) THEN
            v_from := p_at;
        ELSIF p_at + 1 < jsonb_array_length(p_steps) THEN
            status := 'running';
            at_step := p_at + 1;
            RETURN;
        ELSE
            status := 'succeeded';
            RETURN;
        END IF;
    ELSE
        -- There is no way back past what cannot be undone, done or perhaps done.
        IF v_past OR (v_unknown AND v_pivot AND NOT v_step ? 'undo') THEN
            status := CASE WHEN p_event IN ('refused', 'unknown') THEN 'parked' END;
            RETURN;
        END IF;
        IF p_event = 'unknown' AND NOT p_back AND coalesce(v_step ->> 'on_exhausted', 'park') = 'park'
           OR p_event = 'refused' AND NOT p_back AND NOT jsonb_path_exists(p_steps, '$[*].undo')
        THEN
            status := 'parked';
            RETURN;
        END IF;
        v_from := CASE WHEN v_unknown THEN p_at ELSE p_at - 1 END;
    END IF;
    IF p_phase = 'do' THEN
        -- An earlier key or generation may have come further, this step included.
        SELECT greatest(v_from, max(s.n - 1)) INTO v_from
          FROM jsonb_array_elements(p_steps) WITH ORDINALITY AS s (step, n) WHERE s.step ->> 'name' = ANY (p_unsure);
    END IF;
    SELECT s.n - 1 INTO at_step
      FROM jsonb_array_elements(p_steps) WITH ORDINALITY AS s (step, n)
     WHERE s.n - 1 <= v_from AND s.step ? 'undo'
       AND (s.step ->> 'name' = ANY (p_done || p_unsure) OR v_unknown AND s.n - 1 = p_at)
     ORDER BY s.n DESC LIMIT 1;
    IF FOUND THEN
        status := 'compensating';
        phase := 'undo';
        forward := CASE WHEN v_unknown AND at_step = p_at OR p_steps -> at_step ->> 'name' = ANY (p_unsure) THEN 'unknown' ELSE 'done' END;
    ELSE
        status := 'compensated';
        at_step := p_at;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.next_step IS 'Private. What follows for a saga from what became of its step.';
