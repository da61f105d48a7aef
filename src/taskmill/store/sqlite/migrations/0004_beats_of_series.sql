-- Recurring work follows the steady clock: beats move with a step of the wall clock.

-- When due_at was last written. A clock that shows an earlier time has been put back.
ALTER TABLE taskmill_series ADD COLUMN made_at INTEGER;
-- When the next beat comes, which is skipped if the last occurrence is still active.
CREATE INDEX taskmill_series_beat ON taskmill_series (due_at + every_ms)
    WHERE paused = 0 AND (max_runs IS NULL OR runs < max_runs);
-- All occurrences but the first are one interval after the last.
UPDATE taskmill_task SET due_is_relative = 1
WHERE series_id IN (SELECT id FROM taskmill_series WHERE runs > 1) AND due_at IS NOT NULL;
