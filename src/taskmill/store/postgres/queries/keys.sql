-- name: key_holder
SELECT id FROM taskmill_task WHERE type = $1 AND key = $2 AND key IS NOT NULL AND stop IS NULL;

-- name: key_stopper
SELECT id FROM taskmill_task WHERE type = $1 AND key = $2 AND key IS NOT NULL AND stop IS NOT NULL;
