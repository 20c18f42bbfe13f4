-- The newest migration of this database. Prepared only where the schema exists.
SELECT max(m.version) AS version FROM outbox.migrations m
