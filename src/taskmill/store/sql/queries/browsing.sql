-- name: expired_active
-- Fragment: the tasks that have expired and are not in history yet.
{is_expired};

-- name: key_held
-- Fragment: the condition of the index on the keys that active tasks hold.
key IS NOT NULL AND stop IS NULL AND gave_key = false;

-- name: key_given_up
-- Fragment: the condition of the index on the keys that active tasks have given up.
key IS NOT NULL AND (stop IS NOT NULL OR gave_key = true);

-- name: key_of_ended
-- Fragment: the condition of the index on the keys of ended tasks.
key IS NOT NULL;

-- name: known_types
-- Return all task types with active or ended tasks or published defaults.
SELECT json_list(type ORDER BY type) FROM (
    SELECT type FROM taskmill_load UNION SELECT type FROM taskmill_tally UNION SELECT name FROM taskmill_type
    UNION SELECT type FROM taskmill_task WHERE status = 'running'
) AS known;

-- name: known_groups
-- Return at most $3 groups from $1 on, before $2.
SELECT json_list(group_name ORDER BY group_name) FROM (
    SELECT group_name FROM taskmill_load WHERE group_name >= $1::text AND group_name < $2::text
    UNION SELECT group_name FROM taskmill_tally WHERE group_name >= $1::text AND group_name < $2::text
    UNION SELECT group_name FROM taskmill_task
        WHERE status = 'running' AND group_name >= $1::text AND group_name < $2::text
    ORDER BY 1 LIMIT $3::bigint
) AS known;

-- name: tag_names
-- Return at most $2 names of tags from $1 on. Each step looks up the next name, so that tasks are not read.
WITH RECURSIVE found (name) AS (
    SELECT least_of.name FROM (
        SELECT min(name) AS name FROM (
            SELECT min(name) AS name FROM taskmill_task_tag WHERE name >= $1::text
            UNION ALL SELECT min(name) FROM taskmill_history_tag WHERE name >= $1::text
        ) AS both_tables
    ) AS least_of
    UNION ALL
    SELECT (
        SELECT min(name) FROM (
            SELECT min(name) AS name FROM taskmill_task_tag WHERE name > found.name
            UNION ALL SELECT min(name) FROM taskmill_history_tag WHERE name > found.name
        ) AS both_tables
    )
    FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT $2::bigint;

-- name: tag_values_from
-- Return at most $3 values of the tag $1, from $2 on, in the same way.
WITH RECURSIVE found (value) AS (
    SELECT least_of.value FROM (
        SELECT min(value) AS value FROM (
            SELECT min(value) AS value FROM taskmill_task_tag WHERE name = $1::text AND value >= $2::text
            UNION ALL SELECT min(value) FROM taskmill_history_tag WHERE name = $1::text AND value >= $2::text
        ) AS both_tables
    ) AS least_of
    UNION ALL
    SELECT (
        SELECT min(value) FROM (
            SELECT min(value) AS value FROM taskmill_task_tag WHERE name = $1::text AND value > found.value
            UNION ALL SELECT min(value) FROM taskmill_history_tag WHERE name = $1::text AND value > found.value
        ) AS both_tables
    )
    FROM found WHERE found.value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL LIMIT $3::bigint;

-- name: keys_from
-- Return at most $3 keys of tasks of the type $1, from $2 on, in the same way.
WITH RECURSIVE found (key) AS (
    SELECT least_of.key FROM (
        SELECT min(key) AS key FROM (
            SELECT min(key) AS key FROM taskmill_task
            WHERE type = $1::text AND key >= $2::text AND key IS NOT NULL AND stop IS NULL AND gave_key = false
            UNION ALL SELECT min(key) FROM taskmill_history WHERE type = $1::text AND key >= $2::text AND key IS NOT NULL
        ) AS both_tables
    ) AS least_of
    UNION ALL
    SELECT (
        SELECT min(key) FROM (
            SELECT min(key) AS key FROM taskmill_task
            WHERE type = $1::text AND key > found.key AND key IS NOT NULL AND stop IS NULL AND gave_key = false
            UNION ALL SELECT min(key) FROM taskmill_history
            WHERE type = $1::text AND key > found.key AND key IS NOT NULL
        ) AS both_tables
    )
    FROM found WHERE found.key IS NOT NULL
)
SELECT key FROM found WHERE key IS NOT NULL LIMIT $3::bigint;

-- name: ended_in_spans
-- Count the tasks of each given ending that ended in each given span, at most $2 in one; return [n, count].
SELECT json_list(json_row(span.n, (SELECT count(*) FROM (
    SELECT 1 FROM taskmill_history
    WHERE ending = span.ending AND ended_at >= span.since AND ended_at < span.until LIMIT $2::bigint
) AS found)))
FROM rows($1, n bigint, ending text, since bigint, until bigint) AS span;

-- name: times_in_span
-- Return [ended_at, wait, duration] of the last $4 tasks with the ending $1 that ended from $2 on, before $3. The wait
-- is null for a task that never started.
SELECT json_list(json_row(ended_at, wait, duration_ms)) FROM (
    SELECT ended_at, started_at - greatest(created_at, coalesce(due_at, created_at)) AS wait, duration_ms
    FROM taskmill_history WHERE ending = $1::text AND ended_at >= $2::bigint AND ended_at < $3::bigint
    ORDER BY ended_at DESC, id DESC LIMIT $4::bigint
) AS last_of_span;

-- name: kept_of_task
-- Return [saved, series_id, whether it is replaced] of an active or ended task.
SELECT json_row(saved, series_id, coalesce(stop = 'supersede', false)) FROM taskmill_task WHERE id = $1::bigint
UNION ALL
SELECT json_row(saved, series_id, ending = 'superseded') FROM taskmill_history WHERE id = $1::bigint;

-- name: edges_of
-- Return at most $2 dependencies of task $1.
SELECT json_list(json_row(task_id, on_id, open)) FROM (
    SELECT task_id, on_id, open FROM taskmill_dependency WHERE task_id = $1::bigint ORDER BY on_id LIMIT $2::bigint
) AS edges;

-- name: edges_to
-- Return at most $2 dependencies on task $1.
SELECT json_list(json_row(task_id, on_id, open)) FROM (
    SELECT task_id, on_id, open FROM taskmill_dependency WHERE on_id = $1::bigint ORDER BY task_id LIMIT $2::bigint
) AS edges;

-- name: aged_from
-- Return the stored urgency of a waiting task, and when its aging began.
SELECT json_row(urgency, coalesce(renewed_at, queued_at)) FROM taskmill_task WHERE id = $1::bigint;

-- name: children_by_state
-- Return the number of children of one task by status and ending.
SELECT json_map(state, n) FROM (
    SELECT {status_begun} AS state, count(*) AS n FROM taskmill_task AS t WHERE parent_id = $1::bigint GROUP BY 1
    UNION ALL
    SELECT ending, count(*) FROM taskmill_history WHERE parent_id = $1::bigint GROUP BY ending
) AS counted;

-- name: key_before
-- Return [id, was it replaced] of the $4 last tasks before task $3 that had its type $1 and key $2.
SELECT json_list(json_row(id, is_replaced::int)) FROM (
    SELECT * FROM (
        SELECT id, ending = 'superseded' AS is_replaced FROM taskmill_history
        WHERE type = $1 AND key = $2 AND id < $3::bigint ORDER BY ended_at DESC LIMIT $4::bigint
    ) AS ended
    UNION ALL
    SELECT id, true FROM taskmill_task WHERE type = $1 AND key = $2 AND stop = 'supersede' AND id < $3::bigint
) AS found;

-- name: key_after
-- Return [id, was it replaced] of the $4 first tasks after task $3 that had its type $1 and key $2.
SELECT json_list(json_row(id, is_replaced::int)) FROM (
    SELECT * FROM (
        SELECT id, ending = 'superseded' AS is_replaced FROM taskmill_history
        WHERE type = $1 AND key = $2 AND id > $3::bigint ORDER BY ended_at LIMIT $4::bigint
    ) AS ended
    UNION ALL
    SELECT id, coalesce(stop = 'supersede', false) FROM taskmill_task
    WHERE type = $1 AND key = $2 AND id > $3::bigint
) AS found;
