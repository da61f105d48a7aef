-- name: insert_plain
-- Store new tasks that need only [type, group, priority, payload, created_at]. These are almost all tasks, and every
-- value extracted from JSON costs time. Ids ascend in input order, so the caller computes them from the last one.
INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 2, 'pending', value ->> 3, value ->> 4, value ->> 4
FROM json_each(?1);

-- name: insert_children
-- Like insert_plain, for children: [type, group, priority, payload, created_at, parent_id].
INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at, parent_id)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 2, 'pending', value ->> 3, value ->> 4, value ->> 4, value ->> 5
FROM json_each(?1);

-- name: insert_keyed
-- Like insert_plain, for tasks with keys, which may take over the position of another task: [type, key, group,
-- priority, payload, created_at, queued_at, replaced, place_id]. A task with queued_at before created_at has the
-- position of another task, but not its age.
INSERT INTO taskmill_task (
    type, key, group_name, priority, urgency, status, payload, created_at, queued_at, replaced, renewed_at, place_id
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3, 'pending', value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, CASE WHEN value ->> 6 < value ->> 5 THEN value ->> 5 END, value ->> 8
FROM json_each(?1);

-- name: insert
-- Like insert_plain, for tasks with any other option, except links to a parent, dependencies or a series.
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, urgency, status, payload, tags, overrides,
    created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop, replaced, io, renewed_at,
    place_id
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16, value ->> 19, value ->> 20, CASE WHEN value ->> 10 < value ->> 9 THEN value ->> 9 END, value ->> 21
FROM json_each(?1);

-- name: insert_links
-- Like insert, for children, dependents and occurrences of a series.
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
FROM json_each(?1);

-- name: insert_tags
-- Index the tags of the tasks in the given id range.
INSERT INTO taskmill_task_tag (name, value, task_id)
SELECT tag.key, tag.value, t.id
FROM taskmill_task AS t, json_each(t.tags) AS tag
WHERE t.id BETWEEN ?1 AND ?2 AND t.tags IS NOT NULL;
