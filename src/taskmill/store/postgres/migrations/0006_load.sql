-- How many active tasks there are in each group, of each type and status. A file keeps these numbers with each change. Here
-- they are counted on request: nodes that claim at the same time would wait for each other's counters.
CREATE VIEW taskmill_load AS
SELECT group_name, type, status, count(*) AS tasks FROM taskmill_task WHERE status <> 'running'
GROUP BY group_name, type, status;
