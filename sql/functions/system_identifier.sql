-- What tells this database from any other; NULL where the server does not say.
CREATE OR REPLACE FUNCTION outbox.system_identifier() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c);
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN RETURN NULL;
END
$$;
COMMENT ON FUNCTION outbox.system_identifier IS 'Private. The server''s system identifier, NULL where it does not say.';
