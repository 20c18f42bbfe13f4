-- Makes the rows that claims of these lanes will lock, and writes down, for people, where the lanes lead.
-- $1 topics text[], $2 lane endpoints text[], $3 leads_to: a JSON array of endpoints each, text[], $4 in_order boolean[]; in step.
WITH lane AS (
    SELECT l.topic, l.endpoint, ARRAY(SELECT json_array_elements_text(l.leads_to::json)) AS leads_to, l.in_order
      FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS l (topic, endpoint, leads_to, in_order)
), changed AS (
    SELECT o.topic, o.endpoint, l.leads_to, l.in_order
      FROM lane l
      JOIN outbox.lanes o ON o.topic = l.topic AND o.endpoint = l.endpoint
     WHERE (o.leads_to, o.in_order) IS DISTINCT FROM (l.leads_to, l.in_order)
     ORDER BY o.topic, o.endpoint FOR UPDATE OF o
), told AS (
    UPDATE outbox.lanes o
       SET leads_to = c.leads_to, in_order = c.in_order
      FROM changed c
     WHERE o.topic = c.topic AND o.endpoint = c.endpoint
)
INSERT INTO outbox.lanes (topic, endpoint, leads_to, in_order)
SELECT l.topic, l.endpoint, l.leads_to, l.in_order FROM lane l ORDER BY l.topic, l.endpoint
ON CONFLICT (topic, endpoint) DO NOTHING
