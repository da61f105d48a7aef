-- A series is known by the id of its first occurrence, even after that was pruned from history.
ALTER TABLE taskmill_series ADD COLUMN first_id bigint;
UPDATE taskmill_series SET first_id = known.first_id
FROM (
    SELECT series_id, min(id) AS first_id
    FROM (SELECT series_id, id FROM taskmill_task UNION ALL SELECT series_id, id FROM taskmill_history) AS task
    WHERE series_id IS NOT NULL
    GROUP BY series_id
) AS known
WHERE known.series_id = taskmill_series.id;
-- What the task that a dead letter replaced had saved. The dead letter has it again after retry_dead.
ALTER TABLE taskmill_history ADD COLUMN replaced text;
