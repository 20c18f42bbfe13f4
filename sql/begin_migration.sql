-- Opens the transaction of a migration. One migrator at a time; locks on the application's tables are not waited for long.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL role TO DEFAULT;
SET LOCAL synchronous_commit = on;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL quote_all_identifiers = off;
SET LOCAL standard_conforming_strings = on;
SET LOCAL statement_timeout = 0;
SET LOCAL client_min_messages = warning;
SET LOCAL lock_timeout = '60s';
SELECT pg_advisory_xact_lock(hashtext('outbox.migrations'));
SET LOCAL lock_timeout = '1s'
