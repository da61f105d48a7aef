-- name: described
-- Return the descriptions of the given active tasks, for rows of [id, …].
SELECT coalesce(json_agg({description} ORDER BY given.n), '[]')
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
JOIN taskmill_task AS t ON t.id = (given.value ->> 0)::bigint;
