"""Checks that a request alone cannot say, by the name that rule files give them."""

from collections.abc import Awaitable, Callable, Mapping

from outcrop.net.http import Http
from outcrop.scanner.check import Check
from outcrop.validation.amqp import amqp
from outcrop.validation.ask import Turn
from outcrop.validation.aws import aws
from outcrop.validation.azure import azure_storage, entra_client
from outcrop.validation.azure_sas import azure_sas
from outcrop.validation.basic import basic_auth_url
from outcrop.validation.gcp import gcp_service_account
from outcrop.validation.jwt import jwt
from outcrop.validation.mongodb import mongodb
from outcrop.validation.mssql import mssql
from outcrop.validation.mysql import mysql
from outcrop.validation.postgres import pgpass, postgres
from outcrop.validation.private_key import private_key
from outcrop.validation.redis import redis
from outcrop.validation.verdict import Verdict

Named = Callable[[Http, Check, Mapping[str, str], Turn], Awaitable[Verdict]]
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
