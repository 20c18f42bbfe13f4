-- Whether this database has an outbox. Valid on any database.
-- Reads the catalogue's tables: to_regclass asks the session's cache, and a migrator that waited for another one while it
-- was in a transaction would not learn there that the schema has come.
SELECT EXISTS (SELECT
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'outbox' AND c.relname = 'migrations') AS present
