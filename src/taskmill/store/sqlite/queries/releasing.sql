-- name: releasable
-- Return those of the given blocked tasks that nothing holds back any longer.
SELECT json_group_array(json_array(id, group_name, urgency, type, queued_at, renewed_at, due_at, expires_at,
    {place}, {budget}))
FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'blocked' AND stop IS NULL AND gate_id IS NULL AND held = 0
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = 1);

-- name: release
UPDATE taskmill_task SET status = CASE WHEN due_at > ?2 THEN 'scheduled' ELSE 'pending' END
WHERE id IN (SELECT value FROM json_each(?1));

-- name: in_queue
-- Return the positions of those of the given tasks that are in the queue.
SELECT json_group_array(json_array(id, group_name, urgency, type, queued_at, renewed_at, NULL, expires_at,
    {place}, {budget}))
FROM taskmill_task
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'pending' AND stop IS NULL;

-- name: capped_parents
-- Return [id, max_children] of those parents of the given tasks that limit how many children are in the queue.
SELECT json_group_array(json_array(id, max_children)) FROM (
    SELECT DISTINCT parent.id, parent.max_children
    FROM json_each(?1) AS given
    JOIN taskmill_task AS child ON child.id = given.value
    JOIN taskmill_task AS parent ON parent.id = child.parent_id
    WHERE parent.max_children IS NOT NULL
);

-- name: let_in
-- Return the next children of parent ?1 that may enter the queue, of which ?2 may be there at a time. A child that
-- waits for its own children does not count.
SELECT json_group_array(id) FROM (
    SELECT id FROM taskmill_task AS t
    WHERE parent_id = ?1 AND held = 1 AND stop IS NULL AND gate_id IS NULL
        AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = 1)
    ORDER BY urgency, {place}
    LIMIT max(0, ?2 - (
        SELECT count(*) FROM taskmill_task WHERE parent_id = ?1 AND held = 0 AND status <> 'waiting'))
);

-- name: unhold
UPDATE taskmill_task SET held = 0 WHERE id IN (SELECT value FROM json_each(?1));
