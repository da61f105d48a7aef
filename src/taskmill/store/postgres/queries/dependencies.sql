-- name: states
-- Of each of the given tasks: [id, whether it is active, its ending].
SELECT coalesce(json_agg(json_build_array(given.id, t.id IS NOT NULL, h.ending)), '[]')
FROM unnest(taskmill_ids($1)) AS given (id)
LEFT JOIN taskmill_task AS t ON t.id = given.id
LEFT JOIN taskmill_history AS h ON h.id = given.id;

-- name: reaches
-- Whether whoever is among $1 is, or waits, directly or through others, for a task of $2.
WITH RECURSIVE {awaited}
SELECT EXISTS (SELECT 1 FROM awaited WHERE id = ANY (taskmill_ids($2)));

-- name: waits_below
-- [task, task it waits for], from the given ones on: dependencies, children, runs before added ones.
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
-- Rows of [task_id, on_id, open].
INSERT INTO taskmill_dependency (task_id, on_id, open)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::boolean
FROM jsonb_array_elements($1::jsonb) AS given (value)
ON CONFLICT (task_id, on_id) DO NOTHING;

-- name: mark_awaited
UPDATE taskmill_task SET awaited = true WHERE id = ANY (taskmill_ids($1));

-- name: point_at_successors
-- [old, new] pairs: who waits for a task that is replaced waits for its replacement. Who waits for that already, or for
-- two tasks with one replacement, keeps one edge.
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
-- Open edges onto the given ended tasks, with the policy of whoever waits, and whether it waits for no more than the end:
-- it had depended on the next holder of the key, which ended before it could start, and that was no failure to it. The
-- question is asked of few, and costs what is kept of one key.
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
-- [task_id, on_id] pairs.
UPDATE taskmill_dependency AS edge SET open = false
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE edge.task_id = (given.value ->> 0)::bigint AND edge.on_id = (given.value ->> 1)::bigint;

-- name: without_open_edges
-- Those of the given tasks that no longer wait for others to end.
SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids($1)) AND stop IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskmill_dependency WHERE task_id = t.id AND open);

-- name: open_edges_of
-- What the given tasks still wait for.
SELECT coalesce(json_agg(json_build_array(task_id, on_id) ORDER BY task_id, on_id), '[]')
FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1)) AND open;

-- name: lend_urgency
-- [id, urgency] pairs: these tasks, and whatever they wait for, become at least that urgent.
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
-- Those of the given tasks whose urgency is not what it should be, with what it should be: their own priority, or that
-- of a more urgent task which waits for them.
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
-- [id, urgency] pairs.
UPDATE taskmill_task AS t SET urgency = (given.value ->> 1)::smallint
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint;

-- name: waited_for
-- What the given tasks wait for: blockers and children.
SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM (
    SELECT on_id AS id FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1)) AND open
    UNION
    SELECT id FROM taskmill_task WHERE parent_id IS NOT NULL AND parent_id = ANY (taskmill_ids($1))
) AS awaited;

-- name: tied
-- Everything that hangs together with a task, in either table, over dependencies and kinship.
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
-- The given tasks are pruned from history.
DELETE FROM taskmill_dependency WHERE task_id = ANY (taskmill_ids($1));
