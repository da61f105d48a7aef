-- name: described
-- Return the descriptions of the given active tasks, for rows of [id, …].
SELECT json_group_array({description})
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0;
