"""Every statement for a user of an account is bound to the account.

A function of the store that runs SQL takes the account's id, or a query or filter that has it. All other
functions are listed here with the kind of their caller.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.readability import python_files

STORE = Path(__file__).parents[2] / "src" / "outcrop" / "store"
ACCOUNT_PARAMETERS = {"account_id", "account", "cells", "where", "key", "request", "free_slots"}
# These find the account and the member: by key, session or link, and by the e-mail address, which exists once
# in all accounts.
AUTHENTICATION = """
    people/accounts.select_credentials people/accounts.lock_credentials people/accounts.lock_member
    hooks.select_owner people/keys.admit_request people/links.select people/links.use_link
    people/second_factors.use_recovery_code people/sessions.resume_session people/sessions.delete
    people/sign_in_attempts.begin_attempt people/sign_in_attempts._wait_seconds
    people/sign_in_attempts.mark_failed people/sign_in_attempts.delete_attempt
    people/sign_in_attempts.delete_own_attempts people/sign_in_attempts.delete_attempts
"""
# Background jobs work for all accounts, and pass each row on with its account.
BACKGROUND = """
    findings/rollups.fold_deltas findings/rollups.collect_deltas
    findings/suppressions.end_expired findings/suppressions.lock_pending
    incidents/pending.apply_all findings/table.erase_secrets findings/scores.lock_outdated
    findings/verdicts.select_due findings/verdicts.unlock_revalidation
    hooks.delete_old_deliveries hooks.lock_behind
    imports.delete_abandoned imports.forget_keys imports.select_unqueued
    outbox.count_waiting outbox.lock_claimer outbox.unlock_claimer outbox.select_waiting_accounts outbox.save_results
    outbox.end_abandoned_deliveries webhooks.delete_old_deliveries
    webhooks.switch_due webhooks._switch webhooks.encrypt_urls
    people/links.delete_expired people/sessions.delete_expired people/sign_in_attempts.delete_expired
    runs/jobs.claim runs/jobs.count_waiting runs/jobs.is_queued runs/jobs.notify_of_free_lock runs/jobs.requeue_attempt
    runs/jobs.requeue_stalled runs/scans.claim_orphaned_runs
    runs/polls.claim_due runs/pull_requests.delete_old
    runs/scans.save_heartbeats_of_queued runs/sources.mark_stale runs/targets.lock_due
    runs/targets.encrypt_urls runs/scans.strip_queries
"""
# Commands of the operator, who owns the database.
OPERATOR = """
    audit.append_to_every_account findings/rollups.find_mismatches findings/scores.select_sample
    incidents/pending.find_mismatches
    operator_key.unlock_keyring operator_key.rotate_operator_key operator_key.select_wrapped_keys operator_key.upsert_wrapped_keys
    operator_key.begin_data_key_rotation operator_key.end_data_key_rotation
    boxes._select_batch boxes._write imports.fail_unfinished
    outbox.end_open_deliveries people/accounts.insert people/accounts.select people/accounts.select_all
    people/keys.revoke
    runs/jobs.migrate runs/jobs._migrate_procrastinate runs/scans.lock_foreground
    runs/scans.unlock_foreground runs/scans.select_unfinished
    schema._lock_schema schema._apply_migrations schema._applied_versions
    secret_policy.select secret_policy.save secret_policy.settle
"""
# Statements about the connection or about temporary tables, which hold no rows of an account.
NO_ROWS = """
    db.limit_lock_wait db.fetch_single_row disk.find_write_error findings/bulk.open_bulk_import
    findings/bulk.create_batch_table findings/bulk.flush_search_index findings/bulk.discard_plans
    findings/bulk.vacuum_tables findings/bulk.count_new
"""


def functions_without_account() -> Iterator[str]:
    """Yield `module.function` for each function that runs SQL and takes no account."""
    for path in python_files(STORE):
        module = path.relative_to(STORE).with_suffix("").as_posix()
        if module.startswith(("backup/", "embedded/")):  # both work on the database as a whole
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _runs_sql(node):
                parameters = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
                if "db" in parameters and not parameters & ACCOUNT_PARAMETERS:
                    yield f"{module}.{node.name}"


def _runs_sql(function: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr == "execute" for call in calls)


def test_statements_without_an_account_are_listed() -> None:
    listed = f"{AUTHENTICATION} {BACKGROUND} {OPERATOR} {NO_ROWS}".split()
    assert len(listed) == len(set(listed))
    assert sorted(functions_without_account()) == sorted(listed)
