-- name: key_holders
-- The active tasks that hold any of the given [type, key] pairs.
SELECT json_group_array(json_array(t.type, t.key, t.id, t.status, t.priority, t.queued_at, t.gate_id))
FROM json_each(?1) AS wanted
JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
WHERE t.key IS NOT NULL AND t.stop IS NULL;

-- name: key_stoppers
-- The active tasks of the given [type, key] pairs that were asked to stop and have not ended.
SELECT json_group_array(json_array(t.type, t.key, t.id))
FROM json_each(?1) AS wanted
JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
WHERE t.key IS NOT NULL AND t.stop IS NOT NULL;

-- name: last_id
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'taskmill_task';

-- name: insert
-- Store new tasks. Ids ascend in input order, so the last one tells them all.
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, status, payload, tags, overrides,
    created_at, queued_at, due_at, due_is_relative, expires_at, ttl_ms, gate_id, stop
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    value ->> 16
FROM json_each(?1);

-- name: give_up_keys
-- The given tasks are being replaced.
UPDATE taskmill_task SET stop = 'supersede' WHERE id IN (SELECT value FROM json_each(?1)) AND stop IS NULL;

-- name: hand_down_saved
-- [old, new] pairs: a replacement reads what the task it replaces had saved, or had itself been handed down.
UPDATE taskmill_task SET replaced = coalesce(old.saved, old.replaced, '{}')
FROM json_each(?1) AS pair
JOIN taskmill_task AS old ON old.id = pair.value ->> 0
WHERE taskmill_task.id = pair.value ->> 1;

-- name: run_again
-- [id, payload, expires_at] rows: run once more with these when the present attempt has ended.
UPDATE taskmill_task SET rerun = json_array(given.value ->> 1, given.value ->> 2)
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

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
