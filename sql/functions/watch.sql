-- Looks for what is wrong, writes it down, and says what is new. However many relays call it, one of them looks, and each alert
-- comes once.
--
-- Parameters: every = seconds between the looks of one relay: where somebody looked within half of it, nothing is done; repeat = seconds
-- after which an alert that goes on is told again; those of outbox.conditions; webhook = leave notices for one; topic = insert messages
-- of it (NULL = none), in this very transaction.
-- Returns state (firing, reminder, recovered) and content, a JSON object, of each notice; nothing where somebody else looks.
--
-- Guard: the one row of outbox.watching is locked for this transaction, or else somebody looks just now. What is wrong fires at
-- once; it has recovered when it was right for two times `every`, so one that comes and goes is one alert. Not more than a hundred of a
-- kind fire: nobody reads the rest, and a mistake in a thousand topics is one.
CREATE OR REPLACE FUNCTION outbox.watch(
    p_every double precision, p_repeat double precision,
    p_window double precision, p_failure_ratio double precision, p_failure_minimum integer, p_dead_letters integer,
    p_oldest_due double precision, p_paused double precision, p_no_route double precision, p_sagas integer, p_webhook boolean, p_topic text
)
RETURNS TABLE (state text, content json)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now       timestamptz := clock_timestamp();
    v_kinds     text[];
    v_subjects  text[];
    v_summaries text[];
    v_commands  text[];
    v_details   jsonb[];
    v_told      record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.watch needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    -- A clock that was set back must not stop this.
    PERFORM FROM outbox.watching w
      WHERE coalesce(w.watched_at NOT BETWEEN v_now - make_interval(secs => p_every / 2) AND v_now, true)
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    UPDATE outbox.watching SET watched_at = v_now;
    -- Relays give a notice up after a day; these are of a webhook that nobody has any more.
    DELETE FROM outbox.notices n WHERE n.created_at < v_now - interval '2 days';

    -- In a new snapshot, under the lock.
    SELECT coalesce(array_agg(c.kind), '{}'), coalesce(array_agg(c.subject), '{}'), array_agg(c.summary), array_agg(c.command),
           array_agg(c.details)
      INTO v_kinds, v_subjects, v_summaries, v_commands, v_details
      FROM outbox.conditions(p_window, p_failure_ratio, p_failure_minimum, p_dead_letters, p_oldest_due, p_paused, p_no_route, p_sagas) c;
    UPDATE outbox.alerts a
       SET clear_since = NULL, summary = f.summary, command = f.command, details = f.details
      FROM unnest(v_kinds, v_subjects, v_summaries, v_commands, v_details) AS f (kind, subject, summary, command, details)
     WHERE a.kind = f.kind AND a.subject = f.subject;
    UPDATE outbox.alerts a
       SET clear_since = v_now
     WHERE a.clear_since IS NULL
       AND NOT EXISTS (SELECT FROM unnest(v_kinds, v_subjects) AS f (kind, subject) WHERE a.kind = f.kind AND a.subject = f.subject);

    FOR v_told IN
        WITH fired AS (
            INSERT INTO outbox.alerts (kind, subject, firing_since, notified_at, webhook_told, summary, command, details)
            SELECT n.kind, n.subject, v_now, v_now, p_webhook, n.summary, n.command, n.details
              FROM (SELECT f.*, row_number() OVER (PARTITION BY f.kind ORDER BY f.subject)
                                + (SELECT count(*) FROM outbox.alerts a WHERE a.kind = f.kind) AS number
                      FROM unnest(v_kinds, v_subjects, v_summaries, v_commands, v_details) AS f (kind, subject, summary, command, details)
                     WHERE NOT EXISTS (SELECT FROM outbox.alerts a WHERE a.kind = f.kind AND a.subject = f.subject)) n
             WHERE n.number <= 100
            RETURNING alerts.*
        ), reminded AS (
            -- A webhook that came later, as with a rolling update, has not heard of it.
            UPDATE outbox.alerts a SET notified_at = v_now, webhook_told = a.webhook_told OR p_webhook
             WHERE a.clear_since IS NULL
               AND (a.notified_at <= v_now - make_interval(secs => p_repeat) OR p_webhook AND NOT a.webhook_told)
            RETURNING a.*
        ), recovered AS (
            DELETE FROM outbox.alerts a
             WHERE a.clear_since <= v_now - make_interval(secs => 2 * p_every)
            RETURNING a.*
        )
        SELECT gen_random_uuid() AS id, t.*
          FROM (SELECT 1 AS place, 'recovered' AS state, r.* FROM recovered r
                UNION ALL
                SELECT 2, 'firing', f.* FROM fired f
                UNION ALL
                SELECT 3, 'reminder', r.* FROM reminded r) t
         ORDER BY t.place, t.kind, t.subject
    LOOP
        state := v_told.state;
        content := json_build_object(
            'id', v_told.id, 'kind', v_told.kind, 'subject', v_told.subject, 'state', v_told.state,
            'since', v_told.firing_since, 'at', v_now, 'database', current_database(),
            'summary', v_told.summary, 'command', v_told.command, 'details', v_told.details);
        IF p_webhook AND v_told.webhook_told THEN
            INSERT INTO outbox.notices (notice, created_at, not_before, kind, subject, content)
            VALUES (v_told.id, v_now, v_now, v_told.kind, v_told.subject, content);
        END IF;
        IF p_topic IS NOT NULL THEN
            INSERT INTO outbox.messages (id, topic, key, type, payload)
            VALUES (v_told.id, p_topic, left(v_told.kind || ' ' || v_told.subject, 250), 'outbox.alert.' || v_told.state, content);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.watch IS 'Private. Looks for what is wrong, once for all relays, and says what is new.';
