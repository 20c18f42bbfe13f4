-- Whether this database has an outbox; if not, strange is one table or function that a schema of that name has. Valid on any database.
-- Reads the catalogue's tables: to_regclass asks the session's cache, and a migrator that waited for another one while it
-- was in a transaction would not learn there that the schema has come.
SELECT EXISTS (SELECT
                 FROM pg_catalog.pg_class c
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'version' AND a.atttypid = 'pg_catalog.int4'::regtype
                WHERE c.relnamespace = n.oid AND c.relname = 'migrations') AS present,
       (SELECT min(o.name)
          FROM (SELECT c.relname::text AS name FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid
                 UNION ALL
                SELECT p.proname::text FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid) o) AS strange
  FROM (SELECT) one
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'outbox'
