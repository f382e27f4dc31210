"""Checks written in Python, for credentials that no HTTP request of a rule file can check.

A rule file chooses one with `named = "..."`.
"""

from collections.abc import Awaitable, Callable

from outcrop.validation.attempt import Attempt
from outcrop.validation.cloud.aws import check_aws_key
from outcrop.validation.cloud.azure import check_entra_client, check_storage_key
from outcrop.validation.cloud.azure_sas import check_azure_sas
from outcrop.validation.cloud.gcp import check_gcp_service_account
from outcrop.validation.logins.amqp import check_amqp_login
from outcrop.validation.logins.http_basic import check_basic_auth_url
from outcrop.validation.logins.mongodb import check_mongodb_login
from outcrop.validation.logins.mssql import check_mssql_login
from outcrop.validation.logins.mysql import check_mysql_login
from outcrop.validation.logins.postgres import check_pgpass_entry, check_postgres_login
from outcrop.validation.logins.redis import check_redis_login
from outcrop.validation.offline.jwt import check_jwt
from outcrop.validation.offline.private_key import check_private_key
from outcrop.validation.verdict import Verdict

CheckFunction = Callable[[Attempt], Awaitable[Verdict]]
NAMED_CHECKS: dict[str, CheckFunction] = {
    "amqp": check_amqp_login,
    "aws": check_aws_key,
    "azure_sas": check_azure_sas,
    "azure_storage": check_storage_key,
    "basic_auth_url": check_basic_auth_url,
    "entra_client": check_entra_client,
    "gcp_service_account": check_gcp_service_account,
    "jwt": check_jwt,
    "mongodb": check_mongodb_login,
    "mssql": check_mssql_login,
    "mysql": check_mysql_login,
    "pgpass": check_pgpass_entry,
    "postgres": check_postgres_login,
    "private_key": check_private_key,
    "redis": check_redis_login,
}
