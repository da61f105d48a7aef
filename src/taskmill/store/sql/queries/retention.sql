-- name: kept_by_ending
SELECT json_map(ending, kept) FROM (
    SELECT ending, sum(kept) AS kept FROM taskmill_tally GROUP BY ending
) AS sums;

-- name: oldest_of_ending
-- Return the oldest $2 tasks of one ending, as [ended_at, id]. Children are kept while their parent is active, because
-- it may read them.
SELECT json_list(json_row(ended_at, id)) FROM (
    SELECT ended_at, id FROM taskmill_history AS h
    WHERE ending = $1 AND (parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM taskmill_task WHERE id = h.parent_id))
    ORDER BY ended_at, id LIMIT $2::bigint
) AS oldest;

-- name: first_of_ending
-- Return when the oldest task in history with this ending ended.
SELECT min(ended_at) FROM taskmill_history WHERE ending = $1;

-- name: older_of_ending
-- Return at most $2 tasks of one ending that ended before $3. Children are kept while their parent is active.
SELECT json_list(id) FROM (
    SELECT id FROM taskmill_history AS h
    WHERE ending = $1 AND ended_at < $3::bigint
        AND (parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM taskmill_task WHERE id = h.parent_id))
    ORDER BY ended_at, id LIMIT $2::bigint
) AS older;

-- name: uncount
-- Subtract the given history rows from the tally of kept tasks.
-- sqlite:
UPDATE taskmill_tally SET kept = kept - gone.n
FROM (
    SELECT type, group_name, ending, count(*) AS n FROM taskmill_history
    WHERE id IN ids($1) GROUP BY type, group_name, ending
) AS gone
WHERE taskmill_tally.type = gone.type AND taskmill_tally.group_name = gone.group_name
    AND taskmill_tally.ending = gone.ending;
-- postgres: a single shard may fall below zero; the sum of the shards does not.
INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
SELECT type, group_name, ending, 0, -count(*), 0, pg_backend_pid() % 64 FROM taskmill_history
WHERE id IN ids($1) GROUP BY type, group_name, ending ORDER BY 1, 2, 3
ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET kept = tally.kept + excluded.kept;

-- name: delete_history
DELETE FROM taskmill_history WHERE id IN ids($1);

-- name: delete_history_tags
DELETE FROM taskmill_history_tag WHERE task_id IN ids($1);
