-- name: note_errors
-- Store the errors of attempts that ended at $2 on the node $3. The name of a type is cut to 400 characters, because
-- PostgreSQL refuses long values in an index, and an error that cannot be stored would stop the dispatcher.
INSERT INTO taskmill_error (
    task_id, attempt, at, kind, type, exception, location, error, traceback, node, duration_ms, retry_ms
)
SELECT
    task_id, attempt, $2::bigint, kind, substr(type, 1, 400), exception, location, error, traceback, $3::text,
    duration_ms, retry_ms
FROM rows($1,
    task_id bigint, attempt integer, kind text, type text, exception text, location text, error text, traceback text,
    duration_ms bigint, retry_ms bigint
) AS given
WHERE true
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: note_crashes
-- Store the error $3 for running tasks whose processes were found dead at $2. $1 has rows of [task, node].
INSERT INTO taskmill_error (task_id, attempt, at, kind, type, exception, location, error, node)
SELECT t.id, t.attempt, $2::bigint, 'crashed', substr(t.type, 1, 400), 'crashed', '', $3::text, given.node
FROM rows($1, id bigint, node text) AS given
JOIN taskmill_task AS t ON t.id = given.id
WHERE true
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: trim_errors
-- Delete all but the last 20 errors of the given tasks.
DELETE FROM taskmill_error
WHERE task_id IN ids($1) AND attempt <= (
    SELECT older.attempt FROM taskmill_error AS older WHERE older.task_id = taskmill_error.task_id
    ORDER BY older.attempt DESC LIMIT 1 OFFSET 20);

-- name: delete_errors
DELETE FROM taskmill_error WHERE task_id IN ids($1);

-- name: error_groups
-- Return [type, exception, location, number of errors, first, last, tasks of the last 100 errors, dead letters] of each
-- group of errors at $1 or later. A task has at most 20 errors, so the last 100 errors come from at least five tasks if
-- that many failed. A dead letter belongs to the group of its last error.
SELECT json_list(json_row(found.type, found.exception, found.location, n, first_at, last_at, (
    SELECT json_list(task_id) FROM (
        SELECT e.task_id FROM taskmill_error AS e
        WHERE e.exception = found.exception AND e.location = found.location AND e.type = found.type
            AND e.at >= $1::bigint
        ORDER BY e.at DESC, e.task_id DESC LIMIT 100
    ) AS newest)::json, coalesce(dead.letters, 0)))
FROM (
    SELECT type, exception, location, count(*) AS n, min(at) AS first_at, max(at) AS last_at
    FROM taskmill_error WHERE at >= $1::bigint
    GROUP BY exception, location, type
) AS found
LEFT JOIN (
    SELECT e.exception, e.location, e.type, count(*) AS letters
    FROM taskmill_history AS h JOIN taskmill_error AS e ON e.task_id = h.id
    WHERE h.ending = 'dead_letter' AND NOT EXISTS (
        SELECT 1 FROM taskmill_error AS later WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
    GROUP BY e.exception, e.location, e.type
) AS dead ON dead.exception = found.exception AND dead.location = found.location AND dead.type = found.type;

-- name: failed_since
-- Return [task, attempt, at, error, duration, delay of the retry] of the last $2 failures at $1 or later that history
-- does not show, newest first. Failures of the same instant are in any order.
SELECT json_list(json_row(task_id, attempt, at, error, duration_ms, retry_ms)) FROM (
    SELECT task_id, attempt, at, error, duration_ms, retry_ms FROM taskmill_error AS e
    WHERE at >= $1::bigint AND {is_beside_history}
    ORDER BY at DESC LIMIT $2::bigint
) AS failed;

-- name: count_failed_since
SELECT count(*) FROM taskmill_error AS e WHERE at >= $1::bigint AND {is_beside_history};
