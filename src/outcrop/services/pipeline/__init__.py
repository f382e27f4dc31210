"""Run scans: source → detect → validate → score → record → event.

1. `enqueue.start_run` writes a run and the job that plans it.
2. `plan.plan_run` lists the sources of the target and writes a job for each.
3. `run_source.scan_source` scans one source: `git_source.scan_repository` or `site_source.scan_site`.
4. `record.record_secrets` validates, scores and stores the detected secrets and writes their events.

A run takes minutes or hours, so these functions get the connection pool and open short transactions
themselves.
"""
