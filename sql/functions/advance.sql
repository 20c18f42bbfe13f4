-- What follows for the sagas of steps that are settled: a part of the settle's (or the reap's) transaction, so that whoever removes the
-- row of a step stores its output and sends the next one, once.
--
-- The messages are there no longer, or are locked by the caller; then the sagas, by id. A message that is not the one that its saga
-- is at changes nothing: it was replayed from the archive, or its saga went on without it.
-- An undo of a step that was lost with its relay waits for as long as a request may take: that one may still be on its way.
--
-- Parameters, in step: messages, event (see outbox.next_step), output of those that are done, error of those that are not.
-- Returns parked = the messages whose sagas are parked now; and topics and endpoints, in step: the lanes that next steps were put into.
CREATE OR REPLACE FUNCTION outbox.advance(p_messages uuid[], p_events text[], p_outputs text[], p_errors text[],
    OUT parked uuid[], OUT topics text[], OUT endpoints text[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
SET enable_sort = on SET jit = off
AS $$
DECLARE
    r record;
    v_next record;
BEGIN
    parked := '{}';
    topics := '{}';
    endpoints := '{}';
    FOR r IN
        SELECT u.message, u.event, u.output, u.error, s.id, s.name, s.steps -> s.at_step AS step, l.lost
          FROM unnest(p_messages, p_events, p_outputs, p_errors) AS u (message, event, output, error)
          JOIN outbox.sagas s ON s.message = u.message
          LEFT JOIN LATERAL (SELECT m.lost FROM outbox.messages m WHERE m.id = u.message AND m.endpoint = s.steps -> s.at_step ->> 'to') l
            ON true
         WHERE s.status IN ('running', 'compensating')
         ORDER BY s.id FOR UPDATE OF s
    LOOP
        v_next := outbox.move_saga(r.id, r.event, r.output::json, r.error,
               CASE WHEN r.lost > 0 THEN coalesce((r.step ->> 'timeout')::double precision,
                    (SELECT e.timeout FROM outbox.endpoints e WHERE e.endpoint = r.step ->> 'to'), 60) ELSE 0 END);
        IF v_next.status = 'parked' THEN
            parked := parked || r.message;
        ELSIF v_next.endpoint IS NOT NULL THEN
            topics := topics || ('saga:' || r.name);
            endpoints := endpoints || v_next.endpoint;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.advance IS 'Private. What follows for the sagas of steps that are settled.';
