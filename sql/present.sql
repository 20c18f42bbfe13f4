-- Whether this database has an outbox. Valid on any database.
SELECT to_regclass('outbox.migrations') IS NOT NULL AS present
