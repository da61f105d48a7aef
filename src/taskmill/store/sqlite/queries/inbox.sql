-- name: key_holders
-- The active tasks that hold any of the given [type, key] pairs.
SELECT json_group_array(json_array(t.id, t.type, t.key, t.status, t.priority))
FROM json_each(?1) AS wanted
JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1;

-- name: insert
-- Store new tasks. Ids ascend in input order, so the last one tells them all.
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, status, payload, tags, overrides,
    created_at, queued_at, due_at, due_is_relative, expires_at
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13
FROM json_each(?1);

-- name: insert_tags
-- Make tagged tasks of the given id range findable.
INSERT INTO taskmill_task_tag (name, value, task_id)
SELECT tag.key, tag.value, t.id
FROM taskmill_task AS t, json_each(t.tags) AS tag
WHERE t.id BETWEEN ?1 AND ?2 AND t.tags IS NOT NULL;

-- name: raise_priority
-- A more urgent duplicate raises the holder: [id, priority] pairs.
UPDATE taskmill_task SET priority = wanted.value ->> 1
FROM json_each(?1) AS wanted
WHERE taskmill_task.id = wanted.value ->> 0;

-- name: publish_types
INSERT INTO taskmill_type (name, defaults)
SELECT key, value FROM json_each(?1) WHERE true
ON CONFLICT (name) DO UPDATE SET defaults = excluded.defaults WHERE defaults <> excluded.defaults;

-- name: published_types
SELECT json_group_object(name, defaults) FROM taskmill_type;
