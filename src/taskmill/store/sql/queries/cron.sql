-- name: all_cron
-- Return [state, type, task_id, runs] of every cron task, in the order of declaration.
SELECT json_list(json_row(state::json, type, task_id, runs) ORDER BY position)
FROM (SELECT * FROM taskmill_cron ORDER BY position) AS cron;

-- name: cron_named
-- Like all_cron, for the given names.
-- sqlite:
SELECT json_list(json_row(state::json, type, task_id, runs))
FROM (SELECT * FROM taskmill_cron WHERE name IN (SELECT value FROM json_each($1)) ORDER BY position);
-- postgres:
SELECT json_list(json_row(state::json, type, task_id, runs) ORDER BY position) FROM taskmill_cron
WHERE name IN (SELECT json_array_elements_text($1::json));

-- name: cron_of_tasks
-- Like all_cron, for cron tasks whose current firing is one of the given tasks.
SELECT json_list(json_row(state::json, type, task_id, runs)) FROM taskmill_cron
WHERE task_id IS NOT NULL AND task_id IN ids($1);

-- name: declare_cron
-- Store cron tasks.
INSERT INTO taskmill_cron (name, position, type, state, task_id)
SELECT name, position, type, state, task_id
FROM rows($1, name text, position integer, type text, state text, task_id bigint) AS given
WHERE true
ON CONFLICT (name) DO UPDATE SET
    position = excluded.position, type = excluded.type, state = excluded.state, task_id = excluded.task_id;

-- name: write_cron
-- Store the states of cron tasks; "fired" is 1 for a new firing.
UPDATE taskmill_cron AS c SET state = given.state, task_id = given.task_id, runs = c.runs + given.fired
FROM rows($1, name text, state text, task_id bigint, fired integer) AS given
WHERE c.name = given.name;

-- name: forget_cron
-- sqlite:
DELETE FROM taskmill_cron WHERE name IN (SELECT value FROM json_each($1));
-- postgres:
DELETE FROM taskmill_cron WHERE name IN (SELECT json_array_elements_text($1::json));

-- name: firings
-- Return [id, type, overrides, due_at, waits, hook_left] of those of the given tasks that are active. A firing that
-- waits, and has no attempt or child to stop first, can be replaced; if hook_left, its on_cancel hook runs before.
SELECT json_list(json_row(
    id, type, overrides, CASE WHEN status = 'scheduled' THEN due_at END,
    status IN ('pending', 'scheduled') AND stop IS NULL AND finalizing = false AND children = children_ended,
    {hook_left}))
FROM taskmill_task AS t WHERE id IN ids($1);

-- name: mark_firings
-- Mark tasks as firings of cron tasks.
UPDATE taskmill_task AS t SET cron = given.name
FROM rows($1, id bigint, name text) AS given
WHERE t.id = given.id;

-- name: still_active
SELECT json_list(id) FROM taskmill_task WHERE id IN ids($1);

-- name: redeclare_firings
-- Update waiting firings whose declaration has changed. A firing that gets another type gives up its key.
UPDATE taskmill_task AS t SET
    key = CASE WHEN t.type = given.type THEN t.key END,
    payload = CASE WHEN t.type = given.type THEN t.payload ELSE given.payload END,
    type = given.type,
    overrides = given.overrides,
    due_at = CASE WHEN t.status = 'scheduled' THEN given.due_at ELSE t.due_at END
FROM rows($1, id bigint, type text, payload text, overrides text, due_at bigint) AS given
WHERE t.id = given.id;

-- name: rewind_retries
-- Move the retries of cron firings back by $1 ms after the wall clock was set back by more than a retry may be delayed.
-- Firings are due when they are created, so a firing that is scheduled waits for its retry.
UPDATE taskmill_task SET due_at = due_at - $1::bigint
WHERE status = 'scheduled' AND due_at IS NOT NULL AND cron IS NOT NULL AND due_is_relative = false;
