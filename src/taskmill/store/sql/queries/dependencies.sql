-- name: states
-- Return [id, is active, ending] for each of the given tasks.
SELECT json_list(json_row(given.id, t.id IS NOT NULL, h.ending))
FROM ({given_ids}) AS given
LEFT JOIN taskmill_task AS t ON t.id = given.id
LEFT JOIN taskmill_history AS h ON h.id = given.id;

-- name: reaches
-- True if a task of $1 is in $2, or waits directly or indirectly for a task of $2.
WITH RECURSIVE {awaited}
SELECT EXISTS (SELECT 1 FROM awaited WHERE id IN ids($2));

-- name: waits_below
-- Return [task, task it waits for] for the given tasks and all tasks that they wait for: dependencies, children, and
-- the run before an added run.
WITH RECURSIVE {awaited}
SELECT json_list(json_row(task_id, on_id)) FROM (
    SELECT edge.task_id, edge.on_id FROM awaited
    JOIN taskmill_dependency AS edge ON edge.task_id = awaited.id AND edge.open = true
    UNION ALL
    SELECT child.parent_id, child.id FROM awaited JOIN taskmill_task AS child ON child.parent_id = awaited.id
    UNION ALL
    SELECT added.id, before.id FROM awaited JOIN taskmill_task AS added ON added.id = awaited.id
    JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key = true AND before.stop IS NULL
) AS waits;

-- name: insert_edges
-- Store dependencies, unless they exist.
INSERT INTO taskmill_dependency (task_id, on_id, open)
SELECT task_id, on_id, open FROM rows($1, task_id bigint, on_id bigint, open boolean) AS given WHERE true
ON CONFLICT (task_id, on_id) DO NOTHING;

-- name: mark_awaited
UPDATE taskmill_task SET awaited = true WHERE id IN ids($1);

-- name: point_at_successors
-- Make the dependents of replaced tasks wait for the replacements. A dependent that already waits for the replacement,
-- or for two tasks with the same replacement, keeps one edge.
-- sqlite:
UPDATE OR IGNORE taskmill_dependency AS edge SET on_id = given.new_id
FROM rows($1, old_id bigint, new_id bigint) AS given
WHERE edge.on_id = given.old_id AND edge.open = true;
-- postgres:
WITH moved AS (
    SELECT DISTINCT ON (edge.task_id, given.new_id) edge.task_id, edge.on_id, given.new_id
    FROM rows($1, old_id bigint, new_id bigint) AS given
    JOIN taskmill_dependency AS edge ON edge.on_id = given.old_id AND edge.open
    ORDER BY edge.task_id, given.new_id, edge.on_id
)
UPDATE taskmill_dependency AS edge SET on_id = moved.new_id
FROM moved
WHERE edge.task_id = moved.task_id AND edge.on_id = moved.on_id
    AND NOT EXISTS (
        SELECT 1 FROM taskmill_dependency AS known WHERE known.task_id = moved.task_id AND known.on_id = moved.new_id);

-- name: forget_edges_onto
DELETE FROM taskmill_dependency WHERE on_id IN ids($1) AND open = true;

-- name: dependents
-- Return [task, ended task, failure policy, awaits only the end] for each open dependency on the given ended tasks, in
-- the given order. The last value is true if the dependent had depended on the next holder of the same key, which ended
-- before it started; then only the end of the present task matters, not its success. This check runs for few tasks and
-- costs one lookup of the key in history.
-- sqlite: CROSS JOIN fixes the order of the lookups.
SELECT json_list(json_row(edge.task_id, edge.on_id, t.on_dependency_failure, (
    SELECT t.on_dependency_failure <> 'ignore' AND ended.ending <> 'completed' AND EXISTS (
        SELECT 1 FROM taskmill_history AS following
        CROSS JOIN taskmill_dependency AS met
        WHERE following.type = ended.type AND following.key = ended.key
            AND following.id > ended.id AND following.attempt = 0
            AND met.task_id = edge.task_id AND met.on_id = following.id AND met.open = false)
    FROM taskmill_history AS ended WHERE ended.id = edge.on_id)))
FROM json_each($1) AS given
JOIN taskmill_dependency AS edge ON edge.on_id = given.value AND edge.open = true
JOIN taskmill_task AS t ON t.id = edge.task_id;
-- postgres:
SELECT json_list(json_row(edge.task_id, edge.on_id, t.on_dependency_failure, (
    SELECT t.on_dependency_failure <> 'ignore' AND ended.ending <> 'completed' AND EXISTS (
        SELECT 1 FROM taskmill_history AS following
        JOIN taskmill_dependency AS met ON met.task_id = edge.task_id AND met.on_id = following.id AND NOT met.open
        WHERE following.type = ended.type AND following.key = ended.key
            AND following.id > ended.id AND following.attempt = 0)
    FROM taskmill_history AS ended WHERE ended.id = edge.on_id)) ORDER BY given.n, edge.task_id)
FROM unnest(taskmill_ids($1)) WITH ORDINALITY AS given (id, n)
JOIN taskmill_dependency AS edge ON edge.on_id = given.id AND edge.open
JOIN taskmill_task AS t ON t.id = edge.task_id;

-- name: close_edges
-- Mark dependencies as met.
UPDATE taskmill_dependency AS edge SET open = false
FROM rows($1, task_id bigint, on_id bigint) AS given
WHERE edge.task_id = given.task_id AND edge.on_id = given.on_id;

-- name: without_open_edges
-- Return those of the given tasks that have no open dependency left.
SELECT json_list(id ORDER BY id) FROM taskmill_task AS t
WHERE id IN ids($1) AND stop IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open = true);

-- name: open_edges_of
-- Return the open dependencies of the given tasks, as [task_id, on_id].
SELECT json_list(json_row(task_id, on_id) ORDER BY task_id, on_id)
FROM taskmill_dependency WHERE task_id IN ids($1) AND open = true;

-- name: lend_urgency
-- Raise the urgency of tasks, and of everything they wait for, to at least the given one.
-- sqlite:
WITH RECURSIVE lent (id, urgency) AS (
    SELECT id, urgency FROM rows($1, id bigint, urgency smallint) AS given
    UNION
    SELECT edge.on_id, lent.urgency FROM lent
    JOIN taskmill_task AS t ON t.id = lent.id AND t.urgency > lent.urgency
    JOIN taskmill_dependency AS edge ON edge.task_id = lent.id AND edge.open = true
    UNION
    SELECT child.id, lent.urgency FROM lent
    JOIN taskmill_task AS t ON t.id = lent.id AND t.urgency > lent.urgency
    JOIN taskmill_task AS child ON child.parent_id = lent.id
)
UPDATE taskmill_task SET urgency = wanted.urgency
FROM (SELECT id, min(urgency) AS urgency FROM lent GROUP BY id) AS wanted
WHERE taskmill_task.id = wanted.id AND taskmill_task.urgency > wanted.urgency
RETURNING taskmill_task.id;
-- postgres: the recursive part may name the CTE only once.
WITH RECURSIVE lent (id, urgency) AS (
    SELECT id, urgency FROM rows($1, id bigint, urgency smallint) AS given
    UNION
    SELECT next.id, lent.urgency FROM lent
    JOIN taskmill_task AS t ON t.id = lent.id AND t.urgency > lent.urgency
    CROSS JOIN LATERAL (
        SELECT edge.on_id FROM taskmill_dependency AS edge WHERE edge.task_id = lent.id AND edge.open
        UNION ALL
        SELECT child.id FROM taskmill_task AS child WHERE child.parent_id = lent.id
    ) AS next (id)
)
UPDATE taskmill_task SET urgency = wanted.urgency
FROM (SELECT id, min(urgency) AS urgency FROM lent GROUP BY id) AS wanted
WHERE taskmill_task.id = wanted.id AND taskmill_task.urgency > wanted.urgency
RETURNING taskmill_task.id;

-- name: misjudged
-- Return [id, correct urgency] of those of the given tasks whose stored urgency is wrong. The correct one is their own
-- priority, or the urgency of a more urgent task that waits for them.
SELECT json_list(json_row(id, due) ORDER BY id) FROM (
    SELECT t.id, t.urgency, least(
        t.priority,
        coalesce((SELECT min(waiting.urgency) FROM taskmill_dependency AS edge
            JOIN taskmill_task AS waiting ON waiting.id = edge.task_id
            WHERE edge.on_id = t.id AND edge.open = true), t.priority),
        coalesce((SELECT parent.urgency FROM taskmill_task AS parent WHERE parent.id = t.parent_id), t.priority)
    ) AS due
    FROM taskmill_task AS t
    WHERE t.id IN ids($1)
) AS judged WHERE due <> urgency;

-- name: set_urgency
UPDATE taskmill_task AS t SET urgency = given.urgency
FROM rows($1, id bigint, urgency smallint) AS given
WHERE t.id = given.id;

-- name: waited_for
-- Return the tasks that the given ones wait for: dependencies and children.
SELECT json_list(id ORDER BY id) FROM (
    SELECT on_id AS id FROM taskmill_dependency WHERE task_id IN ids($1) AND open = true
    UNION
    SELECT id FROM taskmill_task WHERE parent_id IS NOT NULL AND parent_id IN ids($1)
) AS awaited;

-- name: tied
-- Return all tasks, active or ended, that are connected with a task through dependencies and families.
-- sqlite:
WITH RECURSIVE tied (id) AS (
    SELECT $1
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
SELECT json_list(id) FROM tied;
-- postgres: the recursive part may name the CTE only once.
WITH RECURSIVE tied (id) AS (
    SELECT $1::bigint
    UNION
    SELECT next.id FROM tied CROSS JOIN LATERAL (
        SELECT on_id FROM taskmill_dependency WHERE task_id = tied.id
        UNION ALL
        SELECT task_id FROM taskmill_dependency WHERE on_id = tied.id
        UNION ALL
        SELECT child.id FROM taskmill_task AS child WHERE child.parent_id = tied.id
        UNION ALL
        SELECT child.id FROM taskmill_history AS child WHERE child.parent_id = tied.id
        UNION ALL
        SELECT child.parent_id FROM taskmill_task AS child WHERE child.id = tied.id AND child.parent_id IS NOT NULL
        UNION ALL
        SELECT child.parent_id FROM taskmill_history AS child WHERE child.id = tied.id AND child.parent_id IS NOT NULL
    ) AS next (id)
)
SELECT json_list(id) FROM tied;

-- name: edges_among
-- Return [task_id, on_id, open] of the dependencies of the given tasks.
-- sqlite: booleans are numbers, so they are converted.
SELECT json_list(json_row(task_id, on_id, json(CASE WHEN open THEN 'true' ELSE 'false' END)))
FROM taskmill_dependency WHERE task_id IN ids($1);
-- postgres:
SELECT json_list(json_row(task_id, on_id, open) ORDER BY task_id, on_id)
FROM taskmill_dependency WHERE task_id IN ids($1);

-- name: forget_edges
-- Delete the dependencies of the given tasks, for example when they are pruned from history.
DELETE FROM taskmill_dependency WHERE task_id IN ids($1);
