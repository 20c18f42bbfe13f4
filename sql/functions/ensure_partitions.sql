-- Makes the partitions of today and tomorrow where nobody has made them: relays that were off for a week, and an operator who cleans up
-- before they start. Private: what operators do calls it, for their history.
CREATE OR REPLACE FUNCTION outbox.ensure_partitions() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.to_regclass('outbox.attempts_' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL THEN
        -- It drops nothing that is younger.
        PERFORM outbox.maintain_partitions(1, interval '1000 years', interval '1000 years');
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.ensure_partitions IS 'Private. Makes the partitions of today where nobody has made them.';
