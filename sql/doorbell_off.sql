-- Wants no doorbell.
UPDATE outbox.meta SET doorbell = false;
