-- name: described
-- What events and callers are told about the given [id, …] rows of the active table.
SELECT coalesce(json_agg(json_build_array(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.urgency, t.tags, t.created_at,
    coalesce(t.renewed_at, t.queued_at)) ORDER BY given.n), '[]')
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
JOIN taskmill_task AS t ON t.id = (given.value ->> 0)::bigint;
