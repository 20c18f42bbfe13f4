-- Makes the daily partitions of history and archive, from today to p_days ahead, and drops those that are past retention.
--
-- Runs as the owner of the schema, so that the relay needs no right to change tables. Any relay may call it at any time; one
-- at a time does the work. A partition is made apart and then attached, under a short lock time-out: the caller tries
-- again later. A partition that cannot be dropped now stays until the next time. Only history and archive are touched, never what is undelivered.
-- The names of partitions hold dates, so their DDL is the one place where a statement has to be put together.
--
-- p_attempts and p_delivered: how long to keep, from the end of a partition's day. Returns how many were made and dropped.
CREATE OR REPLACE FUNCTION outbox.maintain_partitions(
    p_days integer, p_attempts interval, p_delivered interval,
    OUT made integer, OUT dropped integer
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC'
AS $$
DECLARE
    v_parent text;
    v_day    date;
    v_name   text;
    v_keep   interval;
BEGIN
    made := 0;
    dropped := 0;
    IF NOT pg_try_advisory_xact_lock(hashtext('outbox.maintain_partitions')) THEN RETURN; END IF;
    FOREACH v_parent IN ARRAY ARRAY['attempts', 'delivered'] LOOP
        FOR v_day IN SELECT d::date FROM generate_series(current_date, current_date + p_days, interval '1 day') d LOOP
            v_name := v_parent || to_char(v_day, '_YYYYMMDD');
            CONTINUE WHEN to_regclass('outbox.' || v_name) IS NOT NULL;
            EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.%I INCLUDING ALL)', v_name, v_parent);
            EXECUTE format('ALTER TABLE outbox.%I ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                           v_parent, v_name, v_day, v_day + 1);
            made := made + 1;
        END LOOP;
        v_keep := CASE v_parent WHEN 'attempts' THEN p_attempts ELSE p_delivered END;
        FOR v_name IN
            SELECT c.relname
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = ('outbox.' || v_parent)::regclass AND c.relname ~ ('^' || v_parent || '_[0-9]{8}$')
               AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 < now() - v_keep
             ORDER BY c.relname
        LOOP
            -- A report that reads for hours must not undo what was made above, nor be waited for once per partition:
            -- whoever inserts queues behind a drop that waits.
            BEGIN
                EXECUTE format('DROP TABLE outbox.%I', v_name);
                dropped := dropped + 1;
            EXCEPTION WHEN lock_not_available THEN
                RAISE WARNING 'outbox.% is past retention and could not be dropped, somebody reads it: %', v_name, sqlerrm;
                EXIT;
            END;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.maintain_partitions IS 'Private. Makes and drops the daily partitions of attempts and delivered.';
REVOKE ALL ON FUNCTION outbox.maintain_partitions FROM PUBLIC;
