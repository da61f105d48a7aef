-- name: insert_plain
-- Store new tasks that need only [type, group, priority, payload, created_at]. These are almost all tasks, and every
-- value extracted from JSON costs time. Ids ascend in input order.
-- sqlite: the caller computes the first id from the last one.
INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 2, 'pending', value ->> 3, value ->> 4, value ->> 4
FROM json_each($1);
-- postgres: store $2 tasks and return the first id, which is $3 if ids were reserved before.
WITH ids AS MATERIALIZED (SELECT coalesce($3::bigint, taskmill_take_ids($2::bigint)) AS first), stored AS (
    INSERT INTO taskmill_task (id, type, group_name, priority, urgency, status, payload, created_at, queued_at)
    SELECT
        ids.first + given.n - 1, value ->> 0, value ->> 1, (value ->> 2)::smallint, (value ->> 2)::smallint, 'pending',
        value ->> 3, (value ->> 4)::bigint, (value ->> 4)::bigint
    FROM ids, jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
    {loaded}
SELECT first FROM ids;

-- name: insert_children
-- Like insert_plain, for children: [type, group, priority, payload, created_at, parent_id].
-- sqlite:
INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at, parent_id)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 2, 'pending', value ->> 3, value ->> 4, value ->> 4, value ->> 5
FROM json_each($1);
-- postgres:
WITH ids AS MATERIALIZED (SELECT coalesce($3::bigint, taskmill_take_ids($2::bigint)) AS first), stored AS (
    INSERT INTO taskmill_task (id, type, group_name, priority, urgency, status, payload, created_at, queued_at, parent_id)
    SELECT
        ids.first + given.n - 1, value ->> 0, value ->> 1, (value ->> 2)::smallint, (value ->> 2)::smallint, 'pending',
        value ->> 3, (value ->> 4)::bigint, (value ->> 4)::bigint, (value ->> 5)::bigint
    FROM ids, jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
    {loaded}
SELECT first FROM ids;

-- name: insert_keyed
-- Like insert_plain, for tasks with keys, which may take over the position of another task: [type, key, group,
-- priority, payload, created_at, queued_at, replaced, place_id]. A task with queued_at before created_at has the
-- position of another task, but not its age.
-- sqlite:
INSERT INTO taskmill_task (
    type, key, group_name, priority, urgency, status, payload, created_at, queued_at, replaced, renewed_at, place_id
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3, 'pending', value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, CASE WHEN value ->> 6 < value ->> 5 THEN value ->> 5 END, value ->> 8
FROM json_each($1);
-- postgres:
WITH ids AS MATERIALIZED (SELECT coalesce($3::bigint, taskmill_take_ids($2::bigint)) AS first), stored AS (
    INSERT INTO taskmill_task (
        id, type, key, group_name, priority, urgency, status, payload, created_at, queued_at, replaced, renewed_at, place_id
    )
    SELECT
        ids.first + given.n - 1, value ->> 0, value ->> 1, value ->> 2, (value ->> 3)::smallint, (value ->> 3)::smallint,
        'pending', value ->> 4, (value ->> 5)::bigint, (value ->> 6)::bigint, value ->> 7,
        CASE WHEN (value ->> 6)::bigint < (value ->> 5)::bigint THEN (value ->> 5)::bigint END, (value ->> 8)::bigint
    FROM ids, jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
    {loaded}
SELECT first FROM ids;

-- name: insert
-- Like insert_plain, for tasks with any other option, except links to a parent, dependencies or a series.
-- sqlite:
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, urgency, status, payload, tags, overrides,
    created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop, replaced, io, renewed_at,
    place_id
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16, value ->> 19, value ->> 20, CASE WHEN value ->> 10 < value ->> 9 THEN value ->> 9 END, value ->> 21
FROM json_each($1);
-- postgres:
WITH ids AS MATERIALIZED (SELECT coalesce($3::bigint, taskmill_take_ids($2::bigint)) AS first), stored AS (
    INSERT INTO taskmill_task (
        id, type, key, label, group_name, priority, urgency, status, payload, tags, overrides,
        created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop, replaced, io, renewed_at,
        place_id
    )
    SELECT
        ids.first + given.n - 1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::smallint,
        (value ->> 4)::smallint, value ->> 5, value ->> 6, value ->> 7, value ->> 8, (value ->> 9)::bigint,
        (value ->> 10)::bigint, (value ->> 11)::bigint, (value ->> 12)::boolean, (value ->> 13)::bigint,
        (value ->> 14)::bigint, (value ->> 15)::bigint, value ->> 16, value ->> 19, value ->> 20,
        CASE WHEN (value ->> 10)::bigint < (value ->> 9)::bigint THEN (value ->> 9)::bigint END, (value ->> 21)::bigint
    FROM ids, jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
    {loaded}
SELECT first FROM ids;

-- name: insert_links
-- Like insert, for children, dependents and occurrences of a series.
-- sqlite:
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, urgency, status, payload, tags, overrides,
    created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop, replaced, io, parent_id, series_id,
    on_dependency_failure, on_parent_expiry, held, renewed_at, place_id
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16, value ->> 19, value ->> 20, value ->> '$[18][0]', value ->> '$[18][1]', value ->> '$[18][2]',
    value ->> '$[18][3]', coalesce(value ->> '$[18][4]', 0),
    CASE WHEN value ->> 10 < value ->> 9 THEN value ->> 9 END, value ->> 21
FROM json_each($1);
-- postgres:
WITH ids AS MATERIALIZED (SELECT coalesce($3::bigint, taskmill_take_ids($2::bigint)) AS first), stored AS (
    INSERT INTO taskmill_task (
        id, type, key, label, group_name, priority, urgency, status, payload, tags, overrides,
        created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop, replaced, io, parent_id, series_id,
        on_dependency_failure, on_parent_expiry, held, renewed_at, place_id
    )
    SELECT
        ids.first + given.n - 1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::smallint,
        (value ->> 4)::smallint, value ->> 5, value ->> 6, value ->> 7, value ->> 8, (value ->> 9)::bigint,
        (value ->> 10)::bigint, (value ->> 11)::bigint, (value ->> 12)::boolean, (value ->> 13)::bigint,
        (value ->> 14)::bigint, (value ->> 15)::bigint, value ->> 16, value ->> 19, value ->> 20,
        (value -> 18 ->> 0)::bigint, (value -> 18 ->> 1)::bigint, value -> 18 ->> 2, value -> 18 ->> 3,
        coalesce((value -> 18 ->> 4)::boolean, false),
        CASE WHEN (value ->> 10)::bigint < (value ->> 9)::bigint THEN (value ->> 9)::bigint END, (value ->> 21)::bigint
    FROM ids, jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n)
    {loaded}
SELECT first FROM ids;

-- name: insert_tags
-- Index the tags of the tasks in the given id range.
-- sqlite:
INSERT INTO taskmill_task_tag (name, value, task_id)
SELECT tag.key, tag.value, t.id
FROM taskmill_task AS t, json_each(t.tags) AS tag
WHERE t.id BETWEEN $1 AND $2 AND t.tags IS NOT NULL;
-- postgres:
INSERT INTO taskmill_task_tag (name, value, task_id)
SELECT tag.key, tag.value, t.id
FROM taskmill_task AS t, jsonb_each_text(t.tags::jsonb) AS tag
WHERE t.id BETWEEN $1::bigint AND $2::bigint AND t.tags IS NOT NULL;
