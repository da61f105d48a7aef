-- name: all_cron
-- Return [state, type, task_id, runs] of every cron task, in the order of declaration.
SELECT json_group_array(json_array(json(state), type, task_id, runs))
FROM (SELECT * FROM taskmill_cron ORDER BY position);

-- name: cron_named
-- Like all_cron, for the given names.
SELECT json_group_array(json_array(json(state), type, task_id, runs))
FROM (SELECT * FROM taskmill_cron WHERE name IN (SELECT value FROM json_each(?1)) ORDER BY position);

-- name: cron_of_tasks
-- Like all_cron, for cron tasks whose current firing is one of the given tasks.
SELECT json_group_array(json_array(json(state), type, task_id, runs))
FROM taskmill_cron WHERE task_id IS NOT NULL AND task_id IN (SELECT value FROM json_each(?1));

-- name: declare_cron
-- Store cron tasks, for rows of [name, position, type, state, task_id].
INSERT INTO taskmill_cron (name, position, type, state, task_id)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?1) WHERE true
ON CONFLICT (name) DO UPDATE SET
    position = excluded.position, type = excluded.type, state = excluded.state, task_id = excluded.task_id;

-- name: write_cron
-- Store the states of cron tasks, for rows of [name, state, task_id, fired]; fired is 1 for a new firing.
UPDATE taskmill_cron SET state = given.value ->> 1, task_id = given.value ->> 2, runs = runs + (given.value ->> 3)
FROM json_each(?1) AS given
WHERE taskmill_cron.name = given.value ->> 0;

-- name: forget_cron
DELETE FROM taskmill_cron WHERE name IN (SELECT value FROM json_each(?1));

-- name: firings
-- Return [id, type, overrides, due_at, waits, hook_left] of those of the given tasks that are active. A firing that
-- waits, and has no attempt or child to stop first, can be replaced; if hook_left, its on_cancel hook runs before.
SELECT json_group_array(json_array(
    id, type, overrides, iif(status = 'scheduled', due_at, NULL),
    status IN ('pending', 'scheduled') AND stop IS NULL AND NOT finalizing AND children = children_ended,
    {hook_left}))
FROM taskmill_task AS t WHERE id IN (SELECT value FROM json_each(?1));

-- name: mark_firings
-- Mark tasks as firings of cron tasks, for rows of [id, name].
UPDATE taskmill_task SET cron = given.value ->> 1
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: still_active
SELECT json_group_array(id) FROM taskmill_task WHERE id IN (SELECT value FROM json_each(?1));

-- name: redeclare_firings
-- Update waiting firings whose declaration has changed, for rows of [id, type, payload, overrides, due_at]. A firing
-- that gets another type gives up its key.
UPDATE taskmill_task SET
    key = iif(taskmill_task.type = given.value ->> 1, taskmill_task.key, NULL),
    payload = iif(taskmill_task.type = given.value ->> 1, payload, given.value ->> 2),
    type = given.value ->> 1,
    overrides = given.value ->> 3,
    due_at = iif(status = 'scheduled', given.value ->> 4, due_at)
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: rewind_retries
-- Move the retries of cron firings back by ?1 ms after the wall clock was set back by more than a retry may be late.
-- Firings are due when they are created, so a firing that is scheduled waits for its retry.
UPDATE taskmill_task SET due_at = due_at - ?1
WHERE status = 'scheduled' AND due_at IS NOT NULL AND cron IS NOT NULL AND due_is_relative = 0;
