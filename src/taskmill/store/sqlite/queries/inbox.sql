-- name: key_holders
-- Of the given [type, key] pairs: the active tasks that hold them, with what events would tell about them, and those that
-- were asked to stop and have not ended; the id after which there is room for ?2 more, here the last that was given out;
-- whether any task waits for others; whether any is a firing; whether paused time is still to be given back. One statement,
-- because each is a hand-over between threads.
SELECT
    (
        SELECT json_group_array(json_array(t.type, t.key, json_array(
            t.id, t.status, t.priority, t.queued_at, t.gate_id, t.parent_id, t.series_id,
            t.finalizing OR t.children > t.children_ended, coalesce(t.saved, t.replaced), t.held,
            t.parent_id IS NOT NULL
                AND (SELECT max_children FROM taskmill_task WHERE id = t.parent_id) IS NOT NULL,
            t.place_id, {hook_left}),
            {description}))
        FROM json_each(?1) AS wanted
        JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
        WHERE t.key IS NOT NULL AND t.stop IS NULL
    ),
    CASE WHEN EXISTS (SELECT 1 FROM taskmill_task WHERE key IS NOT NULL AND stop IS NOT NULL) THEN (
        SELECT json_group_array(json_array(t.type, t.key, t.id))
        FROM json_each(?1) AS wanted
        JOIN taskmill_task AS t ON t.type = wanted.value ->> 0 AND t.key = wanted.value ->> 1
        WHERE t.key IS NOT NULL AND t.stop IS NOT NULL
    ) ELSE '[]' END,
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'taskmill_task' AND ?2 IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open = 1),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_ended_pause);

-- name: give_up_keys
-- The given tasks are being replaced.
UPDATE taskmill_task SET stop = 'supersede' WHERE id IN (SELECT value FROM json_each(?1)) AND stop IS NULL;

-- name: run_again
-- [id, payload, expires_at] rows: run once more with these when the present attempt has ended.
UPDATE taskmill_task SET rerun = json_array(given.value ->> 1, given.value ->> 2)
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

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
