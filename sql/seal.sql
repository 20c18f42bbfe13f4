-- Writes down what the functions of the last migration are. Runs in their transaction: a relay that starts meanwhile sees both or neither.
UPDATE outbox.meta m
   SET functions = outbox.functions_digest()
 WHERE m.functions IS DISTINCT FROM outbox.functions_digest();
