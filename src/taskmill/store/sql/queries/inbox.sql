-- name: key_holders
-- Look up the given [type, key] pairs, all in one statement because each statement is a hand-over between threads.
-- Return the active tasks that hold them, each with its description for events; the tasks that gave a key up (asked to
-- stop, or followed by an added run) and have not ended; the id after which there is room for $2 new tasks; and whether
-- any task has open dependencies, any is a cron firing, and any paused time is still to be given back. $3 is the
-- current time, with which stored deadlines are compared.
SELECT
    (
        SELECT json_list(json_row(t.type, t.key, json_row(
            t.id, t.status, t.priority, t.queued_at, t.gate_id, t.parent_id, t.series_id,
            t.finalizing OR t.children > t.children_ended, coalesce(t.saved, t.replaced), t.held,
            t.parent_id IS NOT NULL
                AND (SELECT max_children FROM taskmill_task WHERE id = t.parent_id) IS NOT NULL,
            t.place_id, {hook_left}, coalesce(gate.gave_key, false), gate.stop IS NOT NULL,
            {may_expire} AND t.expires_at <= $3::bigint AND {may_end_tasks}),
            {description}))
        FROM rows($1, type text, key text) AS wanted
        JOIN taskmill_task AS t ON t.id = (
            SELECT id FROM taskmill_task
            WHERE type = wanted.type AND key = wanted.key AND key IS NOT NULL AND stop IS NULL AND gave_key = false)
        LEFT JOIN taskmill_task AS gate ON gate.id = t.gate_id
    ),
    CASE WHEN EXISTS (SELECT 1 FROM taskmill_task WHERE key IS NOT NULL AND (stop IS NOT NULL OR gave_key = true)) THEN (
        SELECT json_list(json_row(t.type, t.key, t.id))
        FROM rows($1, type text, key text) AS wanted
        JOIN taskmill_task AS t ON t.type = wanted.type AND t.key = wanted.key
        WHERE t.key IS NOT NULL AND (t.stop IS NOT NULL OR t.gave_key = true)
    ) ELSE '[]' END,
    {id_before},
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open = true),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_ended_pause);

-- name: give_up_keys
-- Ask the given tasks to stop because they are being replaced; this frees their keys.
UPDATE taskmill_task SET stop = 'supersede' WHERE id IN ids($1) AND stop IS NULL;

-- name: hand_keys_on
-- Free the keys of the given tasks: a run was added behind each, and holds the key from now on.
UPDATE taskmill_task SET gave_key = true WHERE id IN ids($1);

-- name: renew_added
-- Overwrite runs that requeue has added with the newest submission.
UPDATE taskmill_task AS t SET
    label = task ->> 2, group_name = task ->> 3, priority = (task ->> 4)::smallint, urgency = (task ->> 4)::smallint,
    payload = task ->> 6, tags = task ->> 7, overrides = task ->> 8, created_at = (task ->> 9)::bigint,
    queued_at = (task ->> 10)::bigint, due_at = (task ->> 11)::bigint, due_is_relative = (task ->> 12)::boolean,
    expires_at = (task ->> 13)::bigint, ttl_ms = (task ->> 14)::bigint, io = task ->> 20, replaced = task ->> 19,
    on_dependency_failure = task -> 18 ->> 2, frozen = false, paused_at = NULL
FROM rows($1, id bigint, task json) AS given
WHERE t.id = given.id;

-- name: raise_priority
-- Raise the priority of key holders to that of a more urgent duplicate.
UPDATE taskmill_task AS t SET priority = wanted.priority
FROM rows($1, id bigint, priority smallint) AS wanted
WHERE t.id = wanted.id;

-- name: publish_types
-- sqlite:
INSERT INTO taskmill_type (name, defaults)
SELECT key, value FROM json_each($1) WHERE true
ON CONFLICT (name) DO UPDATE SET defaults = excluded.defaults WHERE defaults <> excluded.defaults;
-- postgres: in a fixed order, so that transactions cannot deadlock.
INSERT INTO taskmill_type AS known (name, defaults)
SELECT key, value FROM jsonb_each_text($1::jsonb) ORDER BY key
ON CONFLICT (name) DO UPDATE SET defaults = excluded.defaults WHERE known.defaults <> excluded.defaults;

-- name: published_types
SELECT json_map(name, defaults) FROM taskmill_type;

-- name: handled_types
-- Return the names of the task types that have a handler on a dispatching node; null if that is not known.
-- sqlite: the last dispatcher has noted them.
SELECT (SELECT value FROM taskmill_setting WHERE name = 'handled_types');
-- postgres: every node has noted its own.
SELECT json_list(DISTINCT type) FROM taskmill_node, json_array_elements_text(types::json) AS type
WHERE NOT stopped AND seen_at <> '-infinity';

-- name: note_handled_types
-- Note the types of the dispatcher of a file. A node of a cluster has them in its own row.
INSERT INTO taskmill_setting (name, value) VALUES ('handled_types', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
