-- Makes the daily partitions of history and archive, from today to p_days ahead, and drops those that are past retention.
--
-- Runs as the owner of the schema, so that the relay needs no right to change tables. Any relay may call it at any time; one
-- at a time does the work. A partition is made apart and then attached, under a short lock time-out: the caller tries
-- again later. A partition that cannot be dropped now stays until the next time. Only history and archive are touched, never what is undelivered.
-- The names of partitions hold dates, so their DDL is the one place where a statement has to be put together.
--
-- Successes can have a shorter time than all else that the history has. A day whose successes are past theirs is thinned: what is to stay,
-- which is little, is copied apart, and takes the place of the whole. One day in a call, so that none is long; a day with more than a
-- million failures would be, and stays as it is.
--
-- p_attempts, p_delivered and p_successes: how long to keep, from the end of a partition's day. Returns how many were made, dropped and
-- thinned: who got one of these calls again.
CREATE OR REPLACE FUNCTION outbox.maintain_partitions(
    p_days integer, p_attempts interval, p_delivered interval, p_successes interval DEFAULT NULL,
    OUT made integer, OUT dropped integer, OUT thinned integer
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC'
AS $$
DECLARE
    v_parent text;
    v_day    date;
    v_name   text;
    v_keep   interval;
    v_apart  text;
    v_much   boolean;
BEGIN
    made := 0;
    dropped := 0;
    thinned := 0;
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

    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
      INTO v_name, v_day
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'outbox.attempts'::regclass AND c.relname ~ '^attempts_[0-9]{8}$'
       AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 < now() - p_successes
       AND obj_description(c.oid, 'pg_class') IS NULL
     ORDER BY c.relname
     LIMIT 1;
    IF v_name IS NULL THEN RETURN; END IF;
    v_apart := v_name || '_thinned';
    BEGIN
        -- Nobody writes to a day that is over; somebody who does must not write what is then lost.
        EXECUTE format('LOCK TABLE ONLY outbox.%I IN SHARE MODE', v_name);
        EXECUTE format('SELECT count(*) > 1000000 FROM (SELECT FROM outbox.%I WHERE settlement <> %L LIMIT 1000001) f', v_name, 'delivered')
           INTO v_much;
        IF v_much THEN
            EXECUTE format('COMMENT ON TABLE outbox.%I IS %L', v_name, 'Whole: it has more than a million failures.');
        ELSE
            EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.attempts INCLUDING ALL)', v_apart);
            EXECUTE format('INSERT INTO outbox.%I SELECT * FROM outbox.%I WHERE settlement <> %L', v_apart, v_name, 'delivered');
            -- With it nothing has to be read again while everybody waits.
            EXECUTE format('ALTER TABLE outbox.%I ADD CONSTRAINT its_day CHECK (started_at >= %L AND started_at < %L)',
                           v_apart, v_day::timestamptz, (v_day + 1)::timestamptz);
            EXECUTE format('DROP TABLE outbox.%I', v_name);
            EXECUTE format('ALTER TABLE outbox.%I RENAME TO %I', v_apart, v_name);
            EXECUTE format('ALTER TABLE outbox.attempts ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                           v_name, v_day, v_day + 1);
            EXECUTE format('ALTER TABLE outbox.%I DROP CONSTRAINT its_day', v_name);
            EXECUTE format('COMMENT ON TABLE outbox.%I IS %L', v_name, 'Thinned: its successes are past retention.');
        END IF;
        thinned := 1;
    EXCEPTION WHEN lock_not_available THEN
        RAISE WARNING 'the successes in outbox.% are past retention and could not be dropped, somebody reads it: %', v_name, sqlerrm;
    END;
END
$$;
COMMENT ON FUNCTION outbox.maintain_partitions IS 'Private. Makes, thins and drops the daily partitions of attempts and delivered.';
REVOKE ALL ON FUNCTION outbox.maintain_partitions FROM PUBLIC;
