-- Goes to sleep: see functions/arm.sql. Returns whether the lock is held.
SELECT outbox.arm() AS armed
