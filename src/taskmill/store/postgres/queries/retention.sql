-- name: kept_by_ending
SELECT coalesce(json_object_agg(ending, kept), '{}') FROM (
    SELECT ending, sum(kept) AS kept FROM taskmill_tally GROUP BY ending
) AS sums;

-- name: oldest_of_ending
-- The oldest $2 ended tasks of one ending. Children are kept as long as their parent may want to read about them.
SELECT coalesce(json_agg(json_build_array(ended_at, id)), '[]') FROM (
    SELECT ended_at, id FROM taskmill_history AS h
    WHERE ending = $1 AND (parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM taskmill_task WHERE id = h.parent_id))
    ORDER BY ended_at, id LIMIT $2::bigint
) AS oldest;

-- name: first_of_ending
-- When the first task in history with this ending ended.
SELECT min(ended_at) FROM taskmill_history WHERE ending = $1;

-- name: older_of_ending
-- Ended tasks of one ending that ended before $3, at most $2.
SELECT coalesce(json_agg(id), '[]') FROM (
    SELECT id FROM taskmill_history AS h
    WHERE ending = $1 AND ended_at < $3::bigint
        AND (parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM taskmill_task WHERE id = h.parent_id))
    ORDER BY ended_at, id LIMIT $2::bigint
) AS older;

-- name: uncount
-- Take the given history rows out of the tally of what is kept. One row of a tally may fall below zero; their sum does not.
INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
SELECT type, group_name, ending, 0, -count(*), 0, pg_backend_pid() % 64 FROM taskmill_history
WHERE id = ANY (taskmill_ids($1)) GROUP BY type, group_name, ending ORDER BY 1, 2, 3
ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET kept = tally.kept + excluded.kept;

-- name: delete_history
DELETE FROM taskmill_history WHERE id = ANY (taskmill_ids($1));

-- name: delete_history_tags
DELETE FROM taskmill_history_tag WHERE task_id = ANY (taskmill_ids($1));
