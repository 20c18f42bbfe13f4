-- The three roles, where the caller may create roles. None can log in: grant them to your own.
DO $$
BEGIN
    CREATE ROLE outbox_writer NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN RAISE NOTICE 'role outbox_writer was not created: %', sqlerrm;
END $$;
DO $$
BEGIN
    CREATE ROLE outbox_relay NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN RAISE NOTICE 'role outbox_relay was not created: %', sqlerrm;
END $$;
DO $$
BEGIN
    CREATE ROLE outbox_reader NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN RAISE NOTICE 'role outbox_reader was not created: %', sqlerrm;
END $$;
