-- What each role may do, where it exists. The application inserts and sees what RETURNING needs; the relay needs no right
-- outside this schema and none to change it; the reader reads.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outbox_writer') THEN
        GRANT USAGE ON SCHEMA outbox TO outbox_writer;
        GRANT INSERT (id, topic, key, type, payload, body, content_type, headers, due_at, expires_at, created_at)
           ON outbox.messages TO outbox_writer;
        GRANT SELECT (id, seq) ON outbox.messages TO outbox_writer;
        GRANT INSERT (id, name, key, input, steps, headers, deadline_at, created_at) ON outbox.sagas TO outbox_writer;
        -- For RETURNING, and for ON CONFLICT (name, key).
        GRANT SELECT (id, name, key) ON outbox.sagas TO outbox_writer;
        GRANT EXECUTE ON FUNCTION outbox.check_plan TO outbox_writer;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outbox_relay') THEN
        GRANT USAGE ON SCHEMA outbox TO outbox_relay;
        GRANT SELECT, INSERT, UPDATE, DELETE
           ON outbox.messages, outbox.lanes, outbox.endpoints, outbox.relays, outbox.leases, outbox.held_keys, outbox.epoch,
              outbox.attempts, outbox.delivered, outbox.dead_letters, outbox.jobs, outbox.alerts, outbox.notices, outbox.watching,
              outbox.sagas, outbox.requests, outbox.schedules
           TO outbox_relay;
        GRANT SELECT ON outbox.meta, outbox.migrations, outbox.messages_seq_seq TO outbox_relay;
        -- A replay gives a new place to what it brings back.
        GRANT USAGE ON outbox.messages_seq_seq TO outbox_relay;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO outbox_relay;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outbox_reader') THEN
        GRANT USAGE ON SCHEMA outbox TO outbox_reader;
        -- By name: partitions are read through their parents, and a migration that is run again must change nothing.
        GRANT SELECT
           ON outbox.messages, outbox.lanes, outbox.endpoints, outbox.relays, outbox.leases, outbox.held_keys, outbox.epoch,
              outbox.attempts, outbox.delivered, outbox.dead_letters, outbox.jobs, outbox.alerts, outbox.notices, outbox.watching,
              outbox.sagas, outbox.requests, outbox.schedules, outbox.meta, outbox.migrations
           TO outbox_reader;
        GRANT EXECUTE
           ON FUNCTION outbox.list, outbox.history, outbox.show, outbox.why, outbox.obstacles, outbox.matching, outbox.fits,
              outbox.check_filter, outbox.find_sagas, outbox.matching_sagas,
              outbox.show_saga
           TO outbox_reader;
    END IF;
END $$;
