-- name: tree
-- Return the given tasks and all their active descendants.
WITH RECURSIVE tree (id) AS (
    {given_ids}
    UNION
    SELECT child.id FROM tree JOIN taskmill_task AS child ON child.parent_id = tree.id
)
SELECT json_list(json_row(
    t.id, t.parent_id, t.status, t.stop, t.finalizing, t.on_parent_expiry, {hook_left}) ORDER BY t.id)
FROM tree JOIN taskmill_task AS t ON t.id = tree.id;

-- name: mark_stopped
-- Ask tasks to stop, and give each its new status: a task that is not running waits for its children or its hook.
UPDATE taskmill_task AS t SET status = given.status, stop = given.stop
FROM rows($1, id bigint, status text, stop text) AS given
WHERE t.id = given.id;

-- name: parents_of_ended
-- Return [child, parent] for each of the given ended tasks that had a parent.
-- sqlite:
SELECT json_list(json_row(ended.id, ended.parent_id))
FROM json_each($1) AS given
JOIN taskmill_history AS ended ON ended.id = given.value
WHERE ended.parent_id IS NOT NULL;
-- postgres:
SELECT json_list(json_row(id, parent_id) ORDER BY id)
FROM taskmill_history
WHERE id IN ids($1) AND parent_id IS NOT NULL;

-- name: parents
-- Return the state of parents whose children have ended, in the given order.
-- sqlite:
SELECT json_list(json_row(
    t.id, t.status, t.stop, t.finalizing, t.fail_fast, t.max_children, t.outcome,
    EXISTS (SELECT 1 FROM taskmill_task AS child WHERE child.parent_id = t.id), t.children - t.children_ended,
    {hook_left}))
FROM json_each($1) AS given
JOIN taskmill_task AS t ON t.id = given.value;
-- postgres:
SELECT json_list(json_row(
    t.id, t.status, t.stop, t.finalizing, t.fail_fast, t.max_children, t.outcome,
    EXISTS (SELECT 1 FROM taskmill_task AS child WHERE child.parent_id = t.id), t.children - t.children_ended,
    {hook_left})
    ORDER BY array_position(taskmill_ids($1), t.id))
FROM taskmill_task AS t
WHERE t.id IN ids($1);

-- name: childless
-- Return tasks that are waiting for children although none is left.
SELECT json_list(id ORDER BY id) FROM taskmill_task AS t
WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM taskmill_task AS child WHERE child.parent_id = t.id);

-- name: live_children
SELECT json_list(id ORDER BY held, urgency, id) FROM taskmill_task WHERE parent_id = $1::bigint;

-- name: count_ended_children
-- Add to the numbers of children that have ended.
UPDATE taskmill_task AS t SET children_ended = t.children_ended + given.n
FROM rows($1, id bigint, n integer) AS given
WHERE t.id = given.id;

-- name: count_children
-- Count the new tasks of the given id range as children of their parents.
UPDATE taskmill_task SET children = children + born.n
FROM (
    SELECT parent_id, count(*)::integer AS n FROM taskmill_task
    WHERE id BETWEEN $1::bigint AND $2::bigint AND parent_id IS NOT NULL GROUP BY parent_id
) AS born
WHERE taskmill_task.id = born.parent_id;

-- name: ended_child
SELECT type, error FROM taskmill_history WHERE id = $1::bigint;

-- name: await_children
-- Let tasks wait for their children after their attempts. A stop request that came in the meantime takes precedence.
UPDATE taskmill_task AS t SET
    status = 'waiting', retries = 0, crashes = 0,
    outcome = CASE WHEN t.stop IS NULL THEN given.outcome ELSE t.outcome END,
    finalizing = (t.stop IS NULL AND t.children > 0 AND given.finalizing)
    {no_node}
FROM rows($1, id bigint, outcome text, finalizing boolean) AS given
WHERE t.id = given.id;

-- name: fail_with_children
-- Let tasks fail once their children have ended.
UPDATE taskmill_task AS t SET
    status = CASE t.status WHEN 'running' THEN 'running' ELSE 'waiting' END, stop = 'fail',
    outcome = given.outcome, finalizing = false
FROM rows($1, id bigint, outcome text) AS given
WHERE t.id = given.id;

-- name: attempt_over
UPDATE taskmill_task SET status = 'waiting' {no_node} WHERE id = $1::bigint AND status = 'running';

-- name: await_release
-- Block a parent that has no children left until it may run its finalize.
UPDATE taskmill_task SET
    status = 'blocked', interrupted = true,
    held = coalesce((SELECT parent.max_children IS NOT NULL FROM taskmill_task AS parent
        WHERE parent.id = taskmill_task.parent_id), false)
WHERE id = $1::bigint;

-- name: ancestors
-- Return the given tasks and their ancestors.
WITH RECURSIVE above (id) AS (
    {given_ids}
    UNION
    SELECT t.parent_id FROM above JOIN taskmill_task AS t ON t.id = above.id WHERE t.parent_id IS NOT NULL
)
SELECT json_list(id) FROM above;

-- name: spawned_among
-- Return those of the given tasks that have a parent.
SELECT json_list(id) FROM taskmill_task WHERE id IN ids($1) AND parent_id IS NOT NULL;

-- name: queue_again
-- Queue parents that have no children left, to run their on_cancel hook.
UPDATE taskmill_task SET status = 'pending', interrupted = true WHERE id IN ids($1);

-- name: spawner
-- Return the parent of an attempt that wants to spawn tasks, if the attempt is alive.
SELECT parent_id FROM taskmill_task
WHERE id = $1::bigint AND attempt = $2::bigint AND status = 'running' AND stop IS NULL;

-- name: traits
-- Return what a parent passes on to its children, and how many of them may be in the queue.
SELECT json_row(json_row(urgency, expires_at, tags::json), max_children)
FROM taskmill_task WHERE id = $1::bigint AND stop IS NULL;

-- name: become_parent
-- Store the settings of a parent. If the code no longer sets max_children, the stored limit stays.
UPDATE taskmill_task SET fail_fast = $2::boolean, max_children = coalesce($3::bigint, max_children) WHERE id = $1::bigint;

-- name: held_children
-- Return the children of the given tasks that are held back because enough of their siblings are in the queue.
SELECT json_list(id ORDER BY id) FROM taskmill_task
WHERE parent_id IS NOT NULL AND parent_id IN ids($1) AND held = true;
