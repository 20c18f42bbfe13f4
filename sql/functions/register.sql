-- Makes a relay known, under a new identity each time, so that nothing of an earlier life can act in its name.
--
-- Returns its identity, its session (see outbox.recover) and the epoch that its memory of floors and leases belongs to.
CREATE OR REPLACE FUNCTION outbox.register(
    p_name text, p_version text, p_config_digest text, p_lease_seconds double precision,
    OUT relay uuid, OUT session integer, OUT epoch uuid
)
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox.epoch DEFAULT VALUES ON CONFLICT (only_row) DO NOTHING;
    SELECT e.epoch INTO STRICT register.epoch FROM outbox.epoch e;
    INSERT INTO outbox.relays (name, version, config_digest, lease_time)
    VALUES (p_name, p_version, p_config_digest, make_interval(secs => p_lease_seconds))
    RETURNING relays.relay, relays.session INTO register.relay, register.session;
END
$$;
COMMENT ON FUNCTION outbox.register IS 'Private. Makes a relay known.';
