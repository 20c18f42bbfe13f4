-- Makes or removes the triggers that ring, as outbox.meta.doorbell says; where it says nothing, there are some unless the server allows
-- prepared transactions, for PostgreSQL refuses to prepare one that has notified. Does nothing, and locks nothing, where all is
-- as it should be.
--
-- A notification takes a lock that all commits of the server share, so it is sent only while somebody sleeps: the one that
-- sleeps holds the advisory lock (1870034018, 1) exclusively, or queues for it, and in both cases the try for a share of it
-- fails. While nobody does, the condition is all that an INSERT costs, and the share that it takes says until the end of the
-- transaction that here is one that did not ring. `SET outbox.doorbell = off` silences a session, a role or a transaction.
DO $$
DECLARE
    v_wanted boolean := coalesce((SELECT m.doorbell FROM outbox.meta m),
                                 current_setting('max_prepared_transactions')::integer = 0);
    v_messages boolean := EXISTS (SELECT FROM pg_catalog.pg_trigger t
                                   WHERE t.tgrelid = 'outbox.messages'::regclass AND t.tgname = 'messages_ring');
    v_sagas  boolean := EXISTS (SELECT FROM pg_catalog.pg_trigger t
                                 WHERE t.tgrelid = 'outbox.sagas'::regclass AND t.tgname = 'sagas_ring');
BEGIN
    IF v_wanted AND NOT v_messages THEN
        CREATE TRIGGER messages_ring AFTER INSERT ON outbox.messages FOR EACH STATEMENT
            WHEN (pg_catalog.current_setting('outbox.doorbell', true) IS DISTINCT FROM 'off'
                  AND NOT pg_catalog.pg_try_advisory_xact_lock_shared(1870034018, 1))
            EXECUTE FUNCTION outbox.ring();
    ELSIF v_messages AND NOT v_wanted THEN
        DROP TRIGGER messages_ring ON outbox.messages;
    END IF;
    IF v_wanted AND NOT v_sagas THEN
        CREATE TRIGGER sagas_ring AFTER INSERT ON outbox.sagas FOR EACH STATEMENT
            WHEN (pg_catalog.current_setting('outbox.doorbell', true) IS DISTINCT FROM 'off'
                  AND NOT pg_catalog.pg_try_advisory_xact_lock_shared(1870034018, 1))
            EXECUTE FUNCTION outbox.ring();
    ELSIF v_sagas AND NOT v_wanted THEN
        DROP TRIGGER sagas_ring ON outbox.sagas;
    END IF;
END $$;
