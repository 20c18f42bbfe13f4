-- Hears the doorbell from now on.
LISTEN outbox_bell
