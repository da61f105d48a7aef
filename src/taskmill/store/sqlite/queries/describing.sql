-- name: described
-- What events and callers are told about the given [id, …] rows of the active table.
SELECT json_group_array({description})
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0;
