-- name: releasable
-- Return those of the given blocked tasks that nothing holds back any longer.
SELECT json_list(json_row(
    id, group_name, urgency, type, queued_at, renewed_at, due_at, expires_at, {place}, {budget}) ORDER BY id)
FROM taskmill_task AS t
WHERE id IN ids($1) AND status = 'blocked' AND stop IS NULL AND gate_id IS NULL AND held = false
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = true);

-- name: release
UPDATE taskmill_task SET status = CASE WHEN due_at > $2::bigint THEN 'scheduled' ELSE 'pending' END
WHERE id IN ids($1);

-- name: in_queue
-- Return the positions of those of the given tasks that are in the queue.
-- sqlite:
SELECT json_list(json_row(
    id, group_name, urgency, type, queued_at, renewed_at, NULL, expires_at, {place}, {budget}))
FROM taskmill_task
WHERE id IN ids($1) AND status = 'pending' AND stop IS NULL;
-- postgres: rows are found by id first. With outdated statistics the planner would scan the index of the whole queue.
WITH given AS MATERIALIZED (SELECT * FROM taskmill_task WHERE id IN ids($1))
SELECT json_list(json_row(
    id, group_name, urgency, type, queued_at, renewed_at, NULL::bigint, expires_at, {place}, {budget}) ORDER BY id)
FROM given
WHERE status = 'pending' AND stop IS NULL;

-- name: capped_parents
-- Return [id, max_children] of those parents of the given tasks that limit how many children are in the queue.
-- sqlite:
SELECT json_list(json_row(id, max_children)) FROM (
    SELECT DISTINCT parent.id, parent.max_children
    FROM json_each($1) AS given
    JOIN taskmill_task AS child ON child.id = given.value
    JOIN taskmill_task AS parent ON parent.id = child.parent_id
    WHERE parent.max_children IS NOT NULL
);
-- postgres:
SELECT json_list(json_row(id, max_children) ORDER BY id) FROM (
    SELECT DISTINCT parent.id, parent.max_children
    FROM taskmill_task AS child
    JOIN taskmill_task AS parent ON parent.id = child.parent_id
    WHERE child.id IN ids($1) AND parent.max_children IS NOT NULL
) AS capped;

-- name: let_in
-- Return the next children of parent $1 that may enter the queue, of which $2 may be there at a time. A child that
-- waits for its own children does not count.
SELECT json_list(id ORDER BY urgency, place) FROM (
    SELECT id, urgency, {place} AS place FROM taskmill_task AS t
    WHERE parent_id = $1::bigint AND held = true AND stop IS NULL AND gate_id IS NULL
        AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = true)
    ORDER BY urgency, {place}
    LIMIT greatest(0, $2::bigint - (
        SELECT count(*) FROM taskmill_task WHERE parent_id = $1::bigint AND held = false AND status <> 'waiting'))
) AS next;

-- name: unhold
UPDATE taskmill_task SET held = false WHERE id IN ids($1);
