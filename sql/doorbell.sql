-- How the doorbell stands: see functions/doorbell.sql.
SELECT b.hangs, b.kept, b.stray, b.relays FROM outbox.doorbell() b
