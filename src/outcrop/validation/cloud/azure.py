"""Check Azure storage account keys and client secrets of Entra applications.

- A storage key signs requests for the lists of its account.
- A client secret is exchanged for tokens, whose roles and subscriptions are what it gives access to.
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from outcrop.domain import clock
from outcrop.domain.finding import Validation
from outcrop.net.http import HttpError, HttpResponse
from outcrop.validation.attempt import Attempt
from outcrop.validation.http.response import json_object_of, judge, strings_of
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated, with_services

_STORAGE_VERSION = "2019-12-12"
_OK = 200
_LOGIN = "https://login.microsoftonline.com/"
_GRAPH_SCOPE = "https://graph.microsoft.com/.default"
_MANAGEMENT_SCOPE = "https://management.azure.com/.default"
_SUBSCRIPTIONS = "https://management.azure.com/subscriptions?api-version=2022-12-01"
_TENANT_ADMIN_ROLES = {
    "RoleManagement.ReadWrite.Directory",
    "AppRoleAssignment.ReadWrite.All",
    "Application.ReadWrite.All",
}


async def check_storage_key(attempt: Attempt) -> Verdict:
    """List the containers of an Azure storage account, signed with its key, and return the verdict.

    If the key is valid, list the account's shares, queues and tables too: each list that Azure returns is a
    service. The verdict is `unvalidated` if the key is not base64, `unreachable` without a response, and
    `error` if Azure considers our clock wrong.
    """
    account = attempt.values["part.account_name"]
    try:
        key = base64.b64decode(attempt.secret, validate=True)
    except ValueError:
        return unvalidated("is not base64, as account keys are")
    try:
        response = await _list_storage(attempt, account, key, "blob")
    except HttpError as failure:
        return unreachable(f"the storage account cannot be reached: {failure}")
    if b"Request date header" in response.body:
        return error("Azure considers the time of the request wrong: is this machine's clock right?")
    verdict = judge(response, attempt.check.answer)
    if verdict.status is not Validation.VALID:
        return verdict
    labels = ["azure_blob"]
    attempt.proven = with_services(verdict, labels)
    for kind in ("file", "queue", "table"):
        try:
            response = await _list_storage(attempt, account, key, kind, after_verdict=True)
        except HttpError:
            continue
        if response.status == _OK:
            labels.append(f"azure_{kind}")
            attempt.proven = with_services(verdict, labels)
    return with_services(verdict, labels)


async def _list_storage(
    attempt: Attempt, account: str, key: bytes, kind: str, *, after_verdict: bool = False
) -> HttpResponse:
    """Request the list of one storage service of an account and return the response.

    `kind` is `blob`, `file`, `queue` or `table`. `after_verdict` shortens the time limit. Raise HttpError if
    there is no response.
    """
    path = "/Tables" if kind == "table" else "/?comp=list"
    return await attempt.send(
        "GET",
        f"https://{account}.{kind}.core.windows.net{path}",
        headers=_shared_key_headers(account, key, kind, clock.now()),
        after_verdict=after_verdict,
    )


def _shared_key_headers(account: str, key: bytes, kind: str, now: datetime) -> dict[str, str]:
    """Return the headers that sign a list request with Azure's Shared Key scheme.

    `key` is the decoded account key. `kind` is `blob`, `file`, `queue` or `table`: the string to sign is a
    different one for `table`.
    """
    date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    if kind == "table":
        string_to_sign = f"GET\n\n\n{date}\n/{account}/Tables"
    else:
        no_standard_headers = "\n" * 12
        own_headers = f"x-ms-date:{date}\nx-ms-version:{_STORAGE_VERSION}"
        string_to_sign = f"GET{no_standard_headers}{own_headers}\n/{account}/\ncomp:list"
    signature = base64.b64encode(hmac.new(key, string_to_sign.encode(), hashlib.sha256).digest()).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _STORAGE_VERSION,
        "Authorization": f"SharedKey {account}:{signature}",
    }
    return headers | ({"Accept": "application/json;odata=nometadata"} if kind == "table" else {})


async def check_entra_client(attempt: Attempt) -> Verdict:
    """Request a token as the Entra application and return the verdict on its client secret.

    For a valid secret, labels for the application's roles in Microsoft Graph and for its Azure subscriptions
    are the services. The verdict is `unreachable` if there is no response.
    """
    try:
        response = await _request_token(attempt, _GRAPH_SCOPE)
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(response, attempt.check.answer)
    if verdict.status is not Validation.VALID:
        return verdict
    roles = strings_of(_token_claims(json_object_of(response).get("access_token")).get("roles"))
    labels = {"azure_graph"} if roles else set()
    labels |= {"azure_graph_admin"} if _TENANT_ADMIN_ROLES & set(roles) else set()
    attempt.proven = with_services(verdict, labels, checked=bool(labels))
    try:
        if await _has_subscriptions(attempt):
            labels.add("azure_management")
    except HttpError:
        pass  # the verdict does not depend on the subscriptions
    return with_services(verdict, labels)


async def _request_token(attempt: Attempt, scope: str, *, after_verdict: bool = False) -> HttpResponse:
    """Request a token for `scope` with the application's OAuth client credentials and return the response.

    `after_verdict` shortens the time limit. Raise HttpError if there is no response.
    """
    form = {
        "grant_type": "client_credentials",
        "client_id": attempt.values["part.client_id"],
        "client_secret": attempt.secret,
        "scope": scope,
    }
    return await attempt.send(
        "POST",
        f"{_LOGIN}{quote(attempt.values['part.tenant_id'], safe='')}/oauth2/v2.0/token",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        body=urlencode(form).encode(),
        after_verdict=after_verdict,
    )


async def _has_subscriptions(attempt: Attempt) -> bool:
    """Whether the application sees an Azure subscription; False if Microsoft issues no token for that.

    Raise HttpError if there is no response.
    """
    response = await _request_token(attempt, _MANAGEMENT_SCOPE, after_verdict=True)
    token = json_object_of(response).get("access_token")
    if not (isinstance(token, str) and token.isascii() and token.isprintable()):
        return False
    headers = {"Authorization": f"Bearer {token}"}
    response = await attempt.send("GET", _SUBSCRIPTIONS, headers=headers, after_verdict=True)
    return response.ok and bool(json_object_of(response).get("value"))


def _token_claims(token: Any) -> dict[str, Any]:
    """Return the claims of a JWT; {} if `token` is not one.

    The signature is not verified, because Microsoft has just sent the token to us.
    """
    payload = token.split(".")[1] if isinstance(token, str) and token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
