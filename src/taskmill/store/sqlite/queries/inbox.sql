-- name: key_holders
-- Look up the given [type, key] pairs, all in one statement because each statement is a hand-over between threads.
-- Return the active tasks that hold them, each with its description for events; the tasks that gave a key up (asked to
-- stop, or followed by an added run) and have not ended; the last id used, after which there is room for ?2 more; and
-- whether any task has open dependencies, any is a cron firing, and any paused time is still to be given back. ?3 is
-- the present, by which stored deadlines may have passed.
SELECT
    (
        SELECT json_group_array(json_array(t.type, t.key, json_array(
            t.id, t.status, t.priority, t.queued_at, t.gate_id, t.parent_id, t.series_id,
            t.finalizing OR t.children > t.children_ended, coalesce(t.saved, t.replaced), t.held,
            t.parent_id IS NOT NULL
                AND (SELECT max_children FROM taskmill_task WHERE id = t.parent_id) IS NOT NULL,
            t.place_id, {hook_left}, coalesce(gate.gave_key, 0), gate.stop IS NOT NULL,
            {may_expire} AND t.expires_at <= ?3),
            {description}))
        FROM json_each(?1) AS wanted
        JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
        LEFT JOIN taskmill_task AS gate ON gate.id = t.gate_id
        WHERE t.key IS NOT NULL AND t.stop IS NULL AND t.gave_key = 0
    ),
    CASE WHEN EXISTS (SELECT 1 FROM taskmill_task WHERE key IS NOT NULL AND (stop IS NOT NULL OR gave_key = 1)) THEN (
        SELECT json_group_array(json_array(t.type, t.key, t.id))
        FROM json_each(?1) AS wanted
        JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
        WHERE t.key IS NOT NULL AND (t.stop IS NOT NULL OR t.gave_key = 1)
    ) ELSE '[]' END,
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'taskmill_task' AND ?2 IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open = 1),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_ended_pause);

-- name: give_up_keys
-- Ask the given tasks to stop because they are being replaced; this frees their keys.
UPDATE taskmill_task SET stop = 'supersede' WHERE id IN (SELECT value FROM json_each(?1)) AND stop IS NULL;

-- name: hand_keys_on
-- Free the keys of the given tasks: a run was added behind each, and holds the key from now on.
UPDATE taskmill_task SET gave_key = 1 WHERE id IN (SELECT value FROM json_each(?1));

-- name: renew_added
-- Overwrite runs that requeue has added with the newest submission, for [id, new task] rows.
UPDATE taskmill_task SET
    label = task ->> 2, group_name = task ->> 3, priority = task ->> 4, urgency = task ->> 4, payload = task ->> 6,
    tags = task ->> 7, overrides = task ->> 8, created_at = task ->> 9, queued_at = task ->> 10, due_at = task ->> 11,
    due_is_relative = task ->> 12, expires_at = task ->> 13, ttl_ms = task ->> 14, io = task ->> 20, replaced = task ->> 19,
    on_dependency_failure = task ->> '$[18][2]', frozen = 0, paused_at = NULL
FROM (SELECT value ->> 0 AS id, value -> 1 AS task FROM json_each(?1)) AS given
WHERE taskmill_task.id = given.id;

-- name: raise_priority
-- Raise the priority of key holders to that of a more urgent duplicate, for [id, priority] pairs.
UPDATE taskmill_task SET priority = wanted.value ->> 1
FROM json_each(?1) AS wanted
WHERE taskmill_task.id = wanted.value ->> 0;

-- name: publish_types
INSERT INTO taskmill_type (name, defaults)
SELECT key, value FROM json_each(?1) WHERE true
ON CONFLICT (name) DO UPDATE SET defaults = excluded.defaults WHERE defaults <> excluded.defaults;

-- name: published_types
SELECT json_group_object(name, defaults) FROM taskmill_type;
