"""Checks that a request alone cannot say, by the name that rule files give them."""

from collections.abc import Awaitable, Callable, Mapping

from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.cloud.aws import aws
from outcrop.validation.cloud.azure import azure_storage, entra_client
from outcrop.validation.cloud.azure_sas import azure_sas
from outcrop.validation.cloud.gcp import gcp_service_account
from outcrop.validation.http.check import Turn
from outcrop.validation.logins.amqp import amqp
from outcrop.validation.logins.http_basic import basic_auth_url
from outcrop.validation.logins.mongodb import mongodb
from outcrop.validation.logins.mssql import mssql
from outcrop.validation.logins.mysql import mysql
from outcrop.validation.logins.postgres import pgpass, postgres
from outcrop.validation.logins.redis import redis
from outcrop.validation.offline.jwt import jwt
from outcrop.validation.offline.private_key import private_key
from outcrop.validation.verdict import Verdict

Named = Callable[[HttpClient, CheckSpec, Mapping[str, str], Turn], Awaitable[Verdict]]
NAMED: dict[str, Named] = {
    "amqp": amqp,
    "aws": aws,
    "azure_sas": azure_sas,
    "azure_storage": azure_storage,
    "basic_auth_url": basic_auth_url,
    "entra_client": entra_client,
    "gcp_service_account": gcp_service_account,
    "jwt": jwt,
    "mongodb": mongodb,
    "mssql": mssql,
    "mysql": mysql,
    "pgpass": pgpass,
    "postgres": postgres,
    "private_key": private_key,
    "redis": redis,
}
