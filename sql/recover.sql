-- Gives back leases that this relay does not know of: see functions/recover.sql.
-- $1 relay uuid, $2 known leases bigint[]. Returns the new session, NULL if the relay is gone.
SELECT outbox.recover($1, $2) AS session
