-- name: states
-- Return [id, is active, ending] for each of the given tasks.
SELECT json_group_array(json_array(given.value, t.id IS NOT NULL, h.ending))
FROM json_each(?1) AS given
LEFT JOIN taskmill_task AS t ON t.id = given.value
LEFT JOIN taskmill_history AS h ON h.id = given.value;

-- name: reaches
-- True if a task of ?1 is in ?2, or waits directly or indirectly for a task of ?2.
WITH RECURSIVE {awaited}
SELECT EXISTS (SELECT 1 FROM awaited WHERE id IN (SELECT value FROM json_each(?2)));

-- name: waits_below
-- Return [task, task it waits for] for the given tasks and all tasks that they wait for: dependencies, children, and
-- the run before an added run.
WITH RECURSIVE {awaited}
SELECT json_group_array(json_array(task_id, on_id)) FROM (
    SELECT edge.task_id, edge.on_id FROM awaited
    JOIN taskmill_dependency AS edge ON edge.task_id = awaited.id AND edge.open = 1
    UNION ALL
    SELECT child.parent_id, child.id FROM awaited JOIN taskmill_task AS child ON child.parent_id = awaited.id
    UNION ALL
    SELECT added.id, before.id FROM awaited JOIN taskmill_task AS added ON added.id = awaited.id
    JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key = 1 AND before.stop IS NULL
);

-- name: insert_edges
-- Store dependencies, for rows of [task_id, on_id, open].
INSERT OR IGNORE INTO taskmill_dependency (task_id, on_id, open)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1);

-- name: mark_awaited
UPDATE taskmill_task SET awaited = 1 WHERE id IN (SELECT value FROM json_each(?1));

-- name: point_at_successors
-- Make the dependents of replaced tasks wait for the replacements, for [old, new] pairs.
UPDATE OR IGNORE taskmill_dependency SET on_id = given.value ->> 1
FROM json_each(?1) AS given
WHERE taskmill_dependency.on_id = given.value ->> 0 AND taskmill_dependency.open = 1;

-- name: forget_edges_onto
DELETE FROM taskmill_dependency WHERE on_id IN (SELECT value FROM json_each(?1)) AND open = 1;

-- name: dependents
-- Return [task, ended task, failure policy, awaits only the end] for each open dependency on the given ended tasks. The
-- last value is true if the dependent had depended on the next holder of the same key, which ended before it started;
-- then only the end of the present task matters, not its success. This check runs for few tasks and costs one lookup of
-- the key in history.
SELECT json_group_array(json_array(edge.task_id, edge.on_id, t.on_dependency_failure, (
    SELECT t.on_dependency_failure <> 'ignore' AND ended.ending <> 'completed' AND EXISTS (
        SELECT 1 FROM taskmill_history AS following
        CROSS JOIN taskmill_dependency AS met
        WHERE following.type = ended.type AND following.key = ended.key
            AND following.id > ended.id AND following.attempt = 0
            AND met.task_id = edge.task_id AND met.on_id = following.id AND met.open = 0)
    FROM taskmill_history AS ended WHERE ended.id = edge.on_id)))
FROM json_each(?1) AS given
JOIN taskmill_dependency AS edge ON edge.on_id = given.value AND edge.open = 1
JOIN taskmill_task AS t ON t.id = edge.task_id;

-- name: close_edges
-- Mark dependencies as met, for [task_id, on_id] pairs.
UPDATE taskmill_dependency SET open = 0
FROM json_each(?1) AS given
WHERE taskmill_dependency.task_id = given.value ->> 0 AND taskmill_dependency.on_id = given.value ->> 1;

-- name: without_open_edges
-- Return those of the given tasks that have no open dependency left.
SELECT json_group_array(id) FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?1)) AND stop IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = 1);

-- name: open_edges_of
-- Return the open dependencies of the given tasks, as [task_id, on_id].
SELECT json_group_array(json_array(edge.task_id, edge.on_id))
FROM json_each(?1) AS given
JOIN taskmill_dependency AS edge ON edge.task_id = given.value AND edge.open = 1;

-- name: lend_urgency
-- Raise the urgency of tasks, and of everything they wait for, to at least the given one, for [id, urgency] pairs.
WITH RECURSIVE lent (id, urgency) AS (
    SELECT value ->> 0, value ->> 1 FROM json_each(?1)
    UNION
    SELECT edge.on_id, lent.urgency FROM lent
    JOIN taskmill_task AS t ON t.id = lent.id AND t.urgency > lent.urgency
    JOIN taskmill_dependency AS edge ON edge.task_id = lent.id AND edge.open = 1
    UNION
    SELECT child.id, lent.urgency FROM lent
    JOIN taskmill_task AS t ON t.id = lent.id AND t.urgency > lent.urgency
    JOIN taskmill_task AS child ON child.parent_id = lent.id
)
UPDATE taskmill_task SET urgency = wanted.urgency
FROM (SELECT id, min(urgency) AS urgency FROM lent GROUP BY id) AS wanted
WHERE taskmill_task.id = wanted.id AND taskmill_task.urgency > wanted.urgency
RETURNING taskmill_task.id;

-- name: misjudged
-- Return [id, correct urgency] of those of the given tasks whose stored urgency is wrong. The correct one is their own
-- priority, or the urgency of a more urgent task that waits for them.
SELECT json_group_array(json_array(id, due)) FROM (
    SELECT t.id, t.urgency, min(
        t.priority,
        coalesce((SELECT min(waiting.urgency) FROM taskmill_dependency AS edge
            JOIN taskmill_task AS waiting ON waiting.id = edge.task_id
            WHERE edge.on_id = t.id AND edge.open = 1), t.priority),
        coalesce((SELECT parent.urgency FROM taskmill_task AS parent WHERE parent.id = t.parent_id), t.priority)
    ) AS due
    FROM json_each(?1) AS given
    JOIN taskmill_task AS t ON t.id = given.value
) WHERE due <> urgency;

-- name: set_urgency
-- Store urgencies, for [id, urgency] pairs.
UPDATE taskmill_task SET urgency = given.value ->> 1
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: waited_for
-- Return the tasks that the given ones wait for: dependencies and children.
SELECT json_group_array(id) FROM (
    SELECT edge.on_id AS id FROM json_each(?1) AS given
    JOIN taskmill_dependency AS edge ON edge.task_id = given.value AND edge.open = 1
    UNION
    SELECT child.id FROM json_each(?1) AS given
    JOIN taskmill_task AS child ON child.parent_id = given.value
);

-- name: tied
-- Return all tasks, active or ended, that are connected with a task through dependencies and families.
WITH RECURSIVE tied (id) AS (
    SELECT ?1
    UNION
    SELECT edge.on_id FROM tied JOIN taskmill_dependency AS edge ON edge.task_id = tied.id
    UNION
    SELECT edge.task_id FROM tied JOIN taskmill_dependency AS edge ON edge.on_id = tied.id
    UNION
    SELECT child.id FROM tied JOIN taskmill_task AS child ON child.parent_id = tied.id
    UNION
    SELECT child.id FROM tied JOIN taskmill_history AS child ON child.parent_id = tied.id
    UNION
    SELECT child.parent_id FROM tied JOIN taskmill_task AS child ON child.id = tied.id
    WHERE child.parent_id IS NOT NULL
    UNION
    SELECT child.parent_id FROM tied JOIN taskmill_history AS child ON child.id = tied.id
    WHERE child.parent_id IS NOT NULL
)
SELECT json_group_array(id) FROM tied;

-- name: edges_among
SELECT json_group_array(json_array(task_id, on_id, json(CASE WHEN open THEN 'true' ELSE 'false' END)))
FROM taskmill_dependency WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: forget_edges
-- Delete the dependencies of the given tasks, for example when they are pruned from history.
DELETE FROM taskmill_dependency WHERE task_id IN (SELECT value FROM json_each(?1));
