-- Makes the rows that claims of these lanes will lock, and writes down, for people, where the lanes lead. In the order in which all lock
-- them; by a probe for each, whatever statistics say of the table.
-- $1 topics text[], $2 lane endpoints text[], $3 leads_to: a JSON array of endpoints each, text[], $4 in_order boolean[]; in step.
INSERT INTO outbox.lanes AS o (topic, endpoint, leads_to, in_order)
SELECT l.topic, l.endpoint, ARRAY(SELECT json_array_elements_text(l.leads_to::json)), l.in_order
  FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS l (topic, endpoint, leads_to, in_order)
 ORDER BY l.topic, l.endpoint
ON CONFLICT (topic, endpoint) DO UPDATE
   SET leads_to = excluded.leads_to, in_order = excluded.in_order
 WHERE (o.leads_to, o.in_order) IS DISTINCT FROM (excluded.leads_to, excluded.in_order)
