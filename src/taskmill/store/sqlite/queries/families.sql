-- name: tree
-- Return the given tasks and all their active descendants.
WITH RECURSIVE tree (id) AS (
    SELECT value FROM json_each(?1)
    UNION
    SELECT child.id FROM tree JOIN taskmill_task AS child ON child.parent_id = tree.id
)
SELECT json_group_array(json_array(
    t.id, t.parent_id, t.status, t.stop, t.finalizing, t.on_parent_expiry, {hook_left}))
FROM tree JOIN taskmill_task AS t ON t.id = tree.id;

-- name: mark_stopped
-- Ask tasks to stop, for rows of [id, status, stop]. A task that is not running then waits for its children or its
-- hook.
UPDATE taskmill_task SET status = given.value ->> 1, stop = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: parents_of_ended
-- Return [child, parent] of those of the given ended tasks that had a parent.
SELECT json_group_array(json_array(ended.id, ended.parent_id))
FROM json_each(?1) AS given
JOIN taskmill_history AS ended ON ended.id = given.value
WHERE ended.parent_id IS NOT NULL;

-- name: parents
-- Return the state of parents whose children have ended.
SELECT json_group_array(json_array(
    t.id, t.status, t.stop, t.finalizing, t.fail_fast, t.max_children, t.outcome,
    EXISTS (SELECT 1 FROM taskmill_task AS child WHERE child.parent_id = t.id), t.children - t.children_ended,
    {hook_left}))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value;

-- name: childless
-- Return tasks that are waiting for children although none is left.
SELECT json_group_array(id) FROM taskmill_task AS t
WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM taskmill_task AS child WHERE child.parent_id = t.id);

-- name: live_children
SELECT json_group_array(id) FROM taskmill_task WHERE parent_id = ?1;

-- name: count_ended_children
-- Count ended children, for [parent, n] pairs.
UPDATE taskmill_task SET children_ended = children_ended + (given.value ->> 1)
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: count_children
-- Count the new tasks of the given id range as children of their parents.
UPDATE taskmill_task SET children = children + born.n
FROM (
    SELECT parent_id, count(*) AS n FROM taskmill_task
    WHERE id BETWEEN ?1 AND ?2 AND parent_id IS NOT NULL GROUP BY parent_id
) AS born
WHERE taskmill_task.id = born.parent_id;

-- name: ended_child
SELECT type, error FROM taskmill_history WHERE id = ?1;

-- name: await_children
-- Let tasks wait for their children after their attempts, for rows of [id, outcome, finalizing]. A stop request that
-- came in the meantime takes precedence.
UPDATE taskmill_task SET
    status = 'waiting', retries = 0, crashes = 0,
    outcome = CASE WHEN stop IS NULL THEN given.value ->> 1 ELSE outcome END,
    finalizing = stop IS NULL AND children > 0 AND (given.value ->> 2)
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: fail_with_children
-- Let tasks fail once their children have ended, for rows of [id, outcome].
UPDATE taskmill_task SET
    status = CASE status WHEN 'running' THEN 'running' ELSE 'waiting' END, stop = 'fail',
    outcome = given.value ->> 1, finalizing = 0
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: attempt_over
UPDATE taskmill_task SET status = 'waiting' WHERE id = ?1 AND status = 'running';

-- name: await_release
-- Block a parent that has no children left until it may run its finalize.
UPDATE taskmill_task SET
    status = 'blocked', interrupted = 1,
    held = coalesce((SELECT parent.max_children IS NOT NULL FROM taskmill_task AS parent
        WHERE parent.id = taskmill_task.parent_id), 0)
WHERE id = ?1;

-- name: ancestors
-- Return the given tasks and their ancestors.
WITH RECURSIVE above (id) AS (
    SELECT value FROM json_each(?1)
    UNION
    SELECT t.parent_id FROM above JOIN taskmill_task AS t ON t.id = above.id WHERE t.parent_id IS NOT NULL
)
SELECT json_group_array(id) FROM above;

-- name: queue_again
-- Queue parents that have no children left, to run their on_cancel hook.
UPDATE taskmill_task SET status = 'pending', interrupted = 1 WHERE id IN (SELECT value FROM json_each(?1));

-- name: spawner
-- Return the parent of an attempt that wants to spawn tasks, if the attempt is alive.
SELECT parent_id FROM taskmill_task WHERE id = ?1 AND attempt = ?2 AND status = 'running' AND stop IS NULL;

-- name: traits
-- Return what a parent passes on to its children, and how many of them may be in the queue.
SELECT json_array(json_array(urgency, expires_at, json(tags)), max_children)
FROM taskmill_task WHERE id = ?1 AND stop IS NULL;

-- name: become_parent
-- Store the settings of a parent. A limit on children in the queue that is stored already stays if the code no longer
-- sets one.
UPDATE taskmill_task SET fail_fast = ?2, max_children = coalesce(?3, max_children) WHERE id = ?1;

-- name: held_children
-- Return the children of the given tasks that are held back because enough of their siblings are in the queue.
SELECT json_group_array(child.id)
FROM json_each(?1) AS given
JOIN taskmill_task AS child ON child.parent_id = given.value AND child.held = 1;
