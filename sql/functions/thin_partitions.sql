-- Drops the successes of one day whose time is over, and keeps all else that the history has of it: what is to stay, which is little, is
-- copied apart, and takes the place of the whole.
--
-- Runs as the owner of the schema, as maintain_partitions does, but in a transaction of its own: what goes wrong here must not undo what
-- that has made. One day in a call, so that none is long; a day that takes longer than a statement may (millions of failures) stays
-- whole. A day that is done has a comment that says so. Somebody who reads it, or a vacuum, puts it off; nobody waits for that but this.
--
-- p_successes: how long to keep them, from the end of a partition's day. Returns how many days were seen to: who got one calls again.
CREATE OR REPLACE FUNCTION outbox.thin_partitions(p_successes interval, OUT thinned integer)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC'
AS $$
DECLARE
    v_name  text;
    v_day   date;
    v_apart text;
BEGIN
    thinned := 0;
    IF NOT pg_try_advisory_xact_lock(hashtext('outbox.maintain_partitions')) THEN RETURN; END IF;
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
        -- Nobody writes to a day that is over; somebody who does must not write what is then lost. Only writers wait for this lock, so it can
        -- be waited for until an automatic vacuum gives way, which it does after deadlock_timeout.
        PERFORM set_config('lock_timeout', '3s', true);
        EXECUTE format('LOCK TABLE ONLY outbox.%I IN SHARE MODE', v_name);
        PERFORM set_config('lock_timeout', '500ms', true);
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
        thinned := 1;
    EXCEPTION
        WHEN lock_not_available THEN
            RAISE WARNING 'the successes in outbox.% are past retention and could not be dropped, somebody is at it: %', v_name, sqlerrm;
        WHEN query_canceled THEN
            -- The time of a statement is over, and ends no other one now.
            EXECUTE format('COMMENT ON TABLE outbox.%I IS %L', v_name, 'Whole: to thin it took too long.');
            thinned := 1;
    END;
END
$$;
COMMENT ON FUNCTION outbox.thin_partitions IS 'Private. Drops the successes of a day of attempts.';
REVOKE ALL ON FUNCTION outbox.thin_partitions FROM PUBLIC;
