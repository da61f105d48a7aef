-- name: key_holder
SELECT id FROM taskmill_task WHERE type = $1 AND key = $2 AND key IS NOT NULL AND stop IS NULL AND gave_key = false;

-- name: key_stopper
SELECT id FROM taskmill_task WHERE type = $1 AND key = $2 AND key IS NOT NULL
    AND (stop IS NOT NULL OR gave_key = true);
