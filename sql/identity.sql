-- Whose outbox this is and where it is now. Prepared only where the schema exists.
SELECT (SELECT max(v.version) FROM outbox.migrations v) AS version,
       m.system_identifier, outbox.system_identifier() AS system_identifier_now,
       m.database, current_database()::text AS database_now, m.guard,
       m.database_oid, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AS database_oid_now,
       (SELECT s.last_value FROM outbox.messages_seq_seq s) AS last_seq, outbox.highest_seq() AS highest_seq
  FROM outbox.meta m
