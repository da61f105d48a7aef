-- name: described
-- What events and callers are told about the given [id, …] rows of the active table.
SELECT json_group_array(json_array(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.urgency, t.tags, t.created_at,
    coalesce(t.renewed_at, t.queued_at)))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0;
