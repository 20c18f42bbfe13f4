-- Hears the doorbell no more.
UNLISTEN outbox_bell
