-- Writes down whose outbox this is, the first time.
INSERT INTO outbox.meta (system_identifier, database, database_oid)
SELECT outbox.system_identifier(), d.datname, d.oid
  FROM pg_catalog.pg_database d
 WHERE d.datname = current_database()
ON CONFLICT (only_row) DO NOTHING;
