-- compatible_from: 9
-- When a process last said that it works on the run, or that the jobs of the run wait for a free worker, by the
-- database's clock. NULL: by a release without heartbeats.
ALTER TABLE scans ADD COLUMN heartbeat_at timestamptz;
