-- The partitions of the first days. Nothing is dropped here: retention is the relay's.
SELECT outbox.maintain_partitions(7, interval '1000 years', interval '1000 years');
