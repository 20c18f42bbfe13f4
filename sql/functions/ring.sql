-- The doorbell: wakes the relay that sleeps. The trigger messages_ring calls it only when somebody sleeps, see hang_doorbell.sql.
--
-- Runs with the rights and the search_path of whoever inserts.
CREATE OR REPLACE FUNCTION outbox.ring() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('outbox_bell', '');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION outbox.ring IS 'Private. Rings the doorbell at the commit of this transaction.';
