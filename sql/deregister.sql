-- Ends this relay and gives back what it still holds.
-- $1 relay uuid.
SELECT outbox.deregister($1)
