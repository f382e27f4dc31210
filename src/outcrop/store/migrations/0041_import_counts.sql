-- compatible_from: 9
-- An import counts its new findings together, and not batch by batch: most cells of one batch have one finding.

-- findings_source_score begins with the same columns.
DROP INDEX findings_source;

-- Only in a transaction that has set outcrop.counts_later (store/findings/bulk.py). It has a temporary table
-- new_findings, and calls count_new_findings() before it ends. What else the triggers do is done here too.
CREATE FUNCTION findings_kept_for_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO new_findings
    SELECT account_id, incident_id, facet, composite_score, first_seen_at, last_seen_at, updated_at, pattern_secret_type,
           source_visibility, rule, left(lower(repo_full_name), 512), author, new_scan_id, context, lower(coalesce(assignee, '')), source
    FROM new_rows;
    INSERT INTO finding_services
    SELECT DISTINCT r.account_id, r.id, s.service, r.facet, r.composite_score, r.first_seen_at
    FROM new_rows r, jsonb_array_elements_text(r.validation_detail -> 'enabled_services') AS s (service);
    RETURN NULL;
END $$;

-- The same counts as those of the triggers below, in one pass over the rows of many batches.
CREATE FUNCTION count_new_findings() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rollup_deltas
    SELECT account_id,
           CASE GROUPING(score, score8, first, first32, last, last32, minute, span)
               WHEN 255 THEN 0 WHEN 127 THEN 1 WHEN 191 THEN 2 WHEN 223 THEN 3 WHEN 239 THEN 4 WHEN 247 THEN 5 WHEN 251 THEN 6
               WHEN 95 THEN 9 WHEN 111 THEN 10 WHEN 253 THEN 17 WHEN 254 THEN 18 END,
           '',
           CASE GROUPING(score, score8, first, first32, last, last32, minute, span)
               WHEN 255 THEN 0 WHEN 127 THEN score WHEN 191 THEN score8 WHEN 223 THEN first WHEN 239 THEN first32 WHEN 247 THEN last
               WHEN 251 THEN last32 WHEN 95 THEN first * 128 + score WHEN 111 THEN first32 * 128 + score WHEN 253 THEN minute
               WHEN 254 THEN span END,
           coalesce(facet, -1), count(*)
    FROM (SELECT account_id, facet, score, score >> 3 AS score8, first, first >> 5 AS first32, last, last >> 5 AS last32,
                 minute, minute >> 10 AS span
          FROM (SELECT account_id, facet, floor(composite_score)::integer AS score,
                       floor(extract(epoch FROM first_seen_at) / 86400)::integer AS first,
                       floor(extract(epoch FROM last_seen_at) / 86400)::integer AS last,
                       floor(extract(epoch FROM updated_at) / 60)::integer AS minute
                FROM new_findings) days) bucketed
    GROUP BY account_id, GROUPING SETS (
        (facet), (), (facet, score), (score), (facet, score8), (score8), (facet, first), (first), (facet, first32), (first32),
        (facet, last), (last), (facet, last32), (last32), (first, score), (first32, score),
        (facet, minute), (minute), (facet, span), (span));
    INSERT INTO rollup_deltas
    SELECT account_id,
           CASE GROUPING(pattern_secret_type, source_visibility, rule, repo, author, new_scan_id, context, assignee, source)
               WHEN 255 THEN 11 WHEN 383 THEN 12 WHEN 447 THEN 13 WHEN 479 THEN 14 WHEN 495 THEN 15 WHEN 503 THEN 16 WHEN 507 THEN 19
               WHEN 509 THEN 20 WHEN 510 THEN 30 END,
           coalesce(pattern_secret_type, source_visibility, rule, repo, author, new_scan_id::text, context, assignee, source),
           0, facet, count(*)
    FROM new_findings
    GROUP BY account_id, facet, GROUPING SETS (
        (pattern_secret_type), (source_visibility), (rule), (repo), (author), (new_scan_id), (context), (assignee), (source))
    HAVING coalesce(pattern_secret_type, source_visibility, rule, repo, author, new_scan_id::text, context, assignee, source) IS NOT NULL;
    INSERT INTO incident_changes (account_id, id) SELECT DISTINCT account_id, incident_id FROM new_findings;
    TRUNCATE new_findings;
END $$;

DO $do$
DECLARE
    counting record;
BEGIN
    FOR counting IN SELECT * FROM (VALUES ('findings_insert', 'findings_inserted'), ('types_insert', 'types_inserted'),
        ('attributes_insert', 'attributes_inserted'), ('sources_insert', 'sources_inserted'), ('incidents_insert', 'incidents_inserted')
    ) v (name, function) LOOP
        EXECUTE format('DROP TRIGGER %I ON findings', counting.name);
        EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON findings REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
            WHEN (current_setting(''outcrop.counts_later'', true) IS DISTINCT FROM ''on'') EXECUTE FUNCTION %I()',
            counting.name, counting.function);
    END LOOP;
END $do$;
CREATE TRIGGER findings_keep_for_counts AFTER INSERT ON findings REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    WHEN (current_setting('outcrop.counts_later', true) = 'on') EXECUTE FUNCTION findings_kept_for_counts();
