-- name: states
-- Return [id, is active, ending] for each of the given tasks.
SELECT coalesce(json_agg(json_build_array(given.id, t.id IS NOT NULL, h.ending)), '[]')
FROM unnest(taskmill_ids($1)) AS given (id)
LEFT JOIN taskmill_task AS t ON t.id = given.id
LEFT JOIN taskmill_history AS h ON h.id = given.id;

-- name: reaches
-- True if a task of $1 is in $2, or waits directly or indirectly for a task of $2.
WITH RECURSIVE {awaited}
SELECT EXISTS (SELECT 1 FROM awaited WHERE id = ANY (taskmill_ids($2)));

-- name: waits_below
-- Return [task, task it waits for] for the given tasks and all tasks that they wait for: dependencies, children, and
-- the run before an added run.
WITH RECURSIVE {awaited}
SELECT coalesce(json_agg(json_build_array(task_id, on_id)), '[]') FROM (
    SELECT edge.task_id, edge.on_id FROM awaited
    JOIN taskmill_dependency AS edge ON edge.task_id = awaited.id AND edge.open
    UNION ALL
    SELECT child.parent_id, child.id FROM awaited JOIN taskmill_task AS child ON child.parent_id = awaited.id
    UNION ALL
    SELECT added.id, before.id FROM awaited JOIN taskmill_task AS added ON added.id = awaited.id
    JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key AND before.stop IS NULL
) AS waits;

-- name: insert_edges
-- Store dependencies, for rows of [task_id, on_id, open].
INSERT INTO taskmill_dependency (task_id, on_id, open)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::boolean
FROM jsonb_array_elements($1::jsonb) AS given (value)
ON CONFLICT (task_id, on_id) DO NOTHING;

-- name: mark_awaited
UPDATE taskmill_task SET awaited = true WHERE id = ANY (taskmill_ids($1));

-- name: point_at_successors
-- Make the dependents of replaced tasks wait for the replacements, for [old, new] pairs. A dependent that already waits
-- for the replacement, or for two tasks with the same replacement, keeps one edge.
WITH moved AS (
    SELECT DISTINCT ON (edge.task_id, (given.value ->> 1)::bigint)
        edge.task_id, edge.on_id, (given.value ->> 1)::bigint AS new_id
    FROM jsonb_array_elements($1::jsonb) AS given (value)
    JOIN taskmill_dependency AS edge ON edge.on_id = (given.value ->> 0)::bigint AND edge.open
    ORDER BY edge.task_id, (given.value ->> 1)::bigint, edge.on_id
)
UPDATE taskmill_dependency AS edge SET on_id = moved.new_id
FROM moved
WHERE edge.task_id = moved.task_id AND edge.on_id = moved.on_id
    AND NOT EXISTS (
        SELECT 1 FROM taskmill_dependency AS known WHERE known.task_id = moved.task_id AND known.on_id = moved.new_id);

-- name: forget_edges_onto
DELETE FROM taskmill_dependency WHERE on_id = ANY (taskmill_ids($1)) AND open;

-- name: dependents
-- Return [task, ended task, failure policy, awaits only the end] for each open dependency on the given ended tasks. The
-- last value is true if the dependent had depended on the next holder of the same key, which ended before it started;
-- then only the end of the present task matters, not its success. This check runs for few tasks and costs one lookup of
-- the key in history.
SELECT coalesce(json_agg(json_build_array(edge.task_id, edge.on_id, t.on_dependency_failure, (
    SELECT t.on_dependency_failure <> 'ignore' AND ended.ending <> 'completed' AND EXISTS (
        SELECT 1 FROM taskmill_history AS following
        JOIN taskmill_dependency AS met ON met.task_id = edge.task_id AND met.on_id = following.id AND NOT met.open
        WHERE following.type = ended.type AND following.key = ended.key
            AND following.id > ended.id AND following.attempt = 0)
    FROM taskmill_history AS ended WHERE ended.id = edge.on_id)) ORDER BY given.n, edge.task_id), '[]')
FROM unnest(taskmill_ids($1)) WITH ORDINALITY AS given (id, n)
JOIN taskmill_dependency AS edge ON edge.on_id = given.id AND edge.open
JOIN taskmill_task AS t ON t.id = edge.task_id;

-- name: close_edges
-- Mark dependencies as met, for [task_id, on_id] pairs.
UPDATE taskmill_dependency AS edge SET open = false
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE edge.task_id = (given.value ->> 0)::bigint AND edge.on_id = (given.value ->> 1)::bigint;

-- name: without_open_edges
-- Return those of the given tasks that have no open dependency left.
SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids($1)) AND stop IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open);

-- name: open_edges_of
-- Return the open dependencies of the given tasks, as [task_id, on_id].
SELECT coalesce(json_agg(json_build_array(task_id, on_id) ORDER BY task_id, on_id), '[]')
FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1)) AND open;

-- name: lend_urgency
-- Raise the urgency of tasks, and of everything they wait for, to at least the given one, for [id, urgency] pairs.
WITH RECURSIVE lent (id, urgency) AS (
    SELECT (value ->> 0)::bigint, (value ->> 1)::smallint FROM jsonb_array_elements($1::jsonb) AS given (value)
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
SELECT coalesce(json_agg(json_build_array(id, due) ORDER BY id), '[]') FROM (
    SELECT t.id, t.urgency, least(
        t.priority,
        (SELECT min(waiting.urgency) FROM taskmill_dependency AS edge
            JOIN taskmill_task AS waiting ON waiting.id = edge.task_id
            WHERE edge.on_id = t.id AND edge.open),
        (SELECT parent.urgency FROM taskmill_task AS parent WHERE parent.id = t.parent_id)
    ) AS due
    FROM taskmill_task AS t
    WHERE t.id = ANY (taskmill_ids($1))
) AS judged WHERE due <> urgency;

-- name: set_urgency
-- Store urgencies, for [id, urgency] pairs.
UPDATE taskmill_task AS t SET urgency = (given.value ->> 1)::smallint
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint;

-- name: waited_for
-- Return the tasks that the given ones wait for: dependencies and children.
SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM (
    SELECT on_id AS id FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1)) AND open
    UNION
    SELECT id FROM taskmill_task WHERE parent_id IS NOT NULL AND parent_id = ANY (taskmill_ids($1))
) AS awaited;

-- name: tied
-- Return all tasks, active or ended, that are connected with a task through dependencies and families.
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
SELECT coalesce(json_agg(id), '[]') FROM tied;

-- name: edges_among
SELECT coalesce(json_agg(json_build_array(task_id, on_id, open) ORDER BY task_id, on_id), '[]')
FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1));

-- name: forget_edges
-- Delete the dependencies of the given tasks, for example when they are pruned from history.
DELETE FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1));
