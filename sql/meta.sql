-- Writes down whose outbox this is, the first time.
INSERT INTO outbox.meta (system_identifier, database)
SELECT outbox.system_identifier(), current_database()
ON CONFLICT (only_row) DO NOTHING;
