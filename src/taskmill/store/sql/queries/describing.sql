-- name: described
-- Return the descriptions of the given active tasks, for rows of [id, …], in the given order.
-- sqlite:
SELECT json_list({description})
FROM json_each($1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0;
-- postgres:
SELECT json_list({description} ORDER BY given.n)
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
JOIN taskmill_task AS t ON t.id = (given.value ->> 0)::bigint;
