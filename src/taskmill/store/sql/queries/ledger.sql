-- name: held_tokens
-- Return each task of the given [id, attempt] rows that still holds its token: [id, stop request, has live children,
-- links to other tasks].
SELECT json_list(json_row(t.id, t.stop, t.children > t.children_ended,
    json_row(t.stop IS NOT NULL OR t.gave_key, t.awaited, t.parent_id IS NOT NULL, t.series_id IS NOT NULL,
        t.cron IS NOT NULL)))
FROM rows($1, id bigint, attempt integer) AS given
JOIN taskmill_task AS t ON {holds_token};

-- name: return_to_queue
-- Return to the queue the given tasks, whose attempts ended at $2.
UPDATE taskmill_task AS t SET
    status = CASE
        WHEN t.series_id IS NOT NULL AND t.stop IS NULL AND given.status IN ('pending', 'scheduled')
            AND (SELECT paused FROM taskmill_series AS s WHERE s.id = t.series_id) THEN 'paused'
        ELSE given.status END,
    retries = given.retries,
    crashes = given.crashes,
    due_at = given.due_at,
    due_is_relative = (t.cron IS NULL), -- a cron task retries at a fixed instant
    last_error = coalesce(given.last_error, t.last_error),
    interrupted = coalesce(given.interrupted, t.interrupted),
    preempted = given.preempted,
    paused_at = $2::bigint
    {no_node}
FROM rows($1,
    id bigint, status text, retries integer, crashes integer, due_at bigint, last_error text, interrupted boolean,
    preempted smallint
) AS given
WHERE t.id = given.id;

-- name: note_begun
-- Store when prefetched tasks began.
UPDATE taskmill_task AS t SET started_at = coalesce(t.started_at, given.began_at)
FROM rows($1, id bigint, attempt integer, began_at bigint) AS given
WHERE {holds_token};

-- name: unclaim
-- Return to the queue the tasks that were claimed but not started. The condition is written as in holds_token.
UPDATE taskmill_task AS t SET
    {before_claim} {no_node}
FROM rows($1, id bigint, attempt integer) AS given
WHERE t.id = given.id AND CASE WHEN t.attempt = given.attempt THEN t.status = 'running' {on_this_node} END;

-- name: stopped_unstarted
-- Return [id, stop request, whether an earlier attempt has begun] of those of the given tasks that were asked to stop.
SELECT json_list(json_row(id, stop, attempt > 0)) FROM taskmill_task
WHERE id IN ids($1) AND status = 'pending' AND stop IS NOT NULL;

-- name: unclaim_others
-- Return to the queue every task that this node has claimed, except the given ones. The answer to a claim was lost, so
-- the node does not know which tasks it claimed.
-- sqlite: nothing to do; a claim in a file never succeeds without the dispatcher knowing it.
-- postgres:
UPDATE taskmill_task AS t SET
    {before_claim}, node_id = NULL
WHERE t.status = 'running' AND t.node_id = {this_node} AND t.id <> ALL (taskmill_ids($1));

-- name: save
UPDATE taskmill_task SET saved = $3 WHERE id = $1::bigint AND attempt = $2::bigint AND status = 'running';

-- name: report_progress
UPDATE taskmill_task AS t SET progress = given.progress
FROM rows($1, id bigint, attempt integer, progress text) AS given
WHERE {holds_token};

-- name: orphans
-- Return the tasks that are marked as running although their dispatcher has died or left.
-- sqlite:
SELECT json_list(json_row(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0, false, started_at IS NOT NULL,
    NULL))
FROM taskmill_task WHERE status = 'running';
-- postgres: the row of their node is gone.
SELECT json_list(json_row(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0,
    node_id IS NOT DISTINCT FROM 0, started_at IS NOT NULL, node_id) ORDER BY id)
FROM taskmill_task AS t
WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id);

-- name: at_work
-- Select the tasks whose handlers may be running. $1 is true if no handler of this process is running.
-- sqlite:
SELECT json_list(id) FROM taskmill_task WHERE status = 'running' AND NOT $1;
-- postgres: handlers of other nodes may be running in either case.
SELECT json_list(id) FROM taskmill_task AS t
WHERE status = 'running' AND (NOT $1::boolean OR EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id));
