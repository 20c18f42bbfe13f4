-- Wants the doorbell, whatever the server's settings are.
UPDATE outbox.meta SET doorbell = true;
