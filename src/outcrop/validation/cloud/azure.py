"""Azure: storage keys prove themselves by a signature, Entra applications by asking for a token."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from outcrop.domain.finding import Validation
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import json_of, send, texts
from outcrop.validation.http.check import Turn
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated, with_services

_VERSION = "2019-12-12"
_OK = 200
_LOGIN = "https://login.microsoftonline.com/"
_GRAPH = "https://graph.microsoft.com/.default"
_MANAGEMENT = "https://management.azure.com/.default"
_SUBSCRIPTIONS = "https://management.azure.com/subscriptions?api-version=2022-12-01"
_RULES_THE_TENANT = {
    "RoleManagement.ReadWrite.Directory",
    "AppRoleAssignment.ReadWrite.All",
    "Application.ReadWrite.All",
}


async def azure_storage(http: HttpClient, check: CheckSpec, values: Mapping[str, str], turn: Turn) -> Verdict:
    """Ask for the list of containers, signed with the account's key."""
    account = values["part.account_name"]
    try:
        key = base64.b64decode(values["secret"], validate=True)
    except ValueError:
        return unvalidated("is no base64, as account keys are")

    async def listed(kind: str, *, further: bool = False) -> HttpResponse:
        path = "/Tables" if kind == "table" else "/?comp=list"
        headers = shared_key(account, key, kind, datetime.now(UTC))
        return await send(
            http,
            turn,
            "GET",
            f"https://{account}.{kind}.core.windows.net{path}",
            headers=headers,
            further=further,
        )

    try:
        answer = await listed("blob")
    except HttpError as failure:
        return unreachable(f"the storage account cannot be reached: {failure}")
    if b"Request date header" in answer.body:
        return error("Azure finds the time of the request wrong: is this machine's clock right?")
    verdict = judge(answer, check.answer)
    if verdict.status is not Validation.VALID:
        return verdict
    labels = ["azure_blob"]
    turn.proven = with_services(verdict, labels)
    for kind in ("file", "queue", "table"):
        try:
            if (await listed(kind, further=True)).status == _OK:
                labels.append(f"azure_{kind}")
                turn.proven = with_services(verdict, labels)
        except HttpError:
            continue
    return with_services(verdict, labels)


def shared_key(account: str, key: bytes, kind: str, now: datetime) -> dict[str, str]:
    """Give the headers of a request for a service's list. Tables are signed in a way of their own."""
    date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    if kind == "table":
        text = f"GET\n\n\n{date}\n/{account}/Tables"
    else:
        text = "GET" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{account}/\ncomp:list"
    proof = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    accept = {"Accept": "application/json;odata=nometadata"} if kind == "table" else {}
    return {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {account}:{proof}",
    } | accept


async def entra_client(http: HttpClient, check: CheckSpec, values: Mapping[str, str], turn: Turn) -> Verdict:
    """Ask for a token as the application; what the token says it may do, and which subscriptions it sees, is what it opens."""

    async def token(scope: str, *, further: bool = False) -> HttpResponse:
        form = {
            "grant_type": "client_credentials",
            "client_id": values["part.client_id"],
            "client_secret": values["secret"],
            "scope": scope,
        }
        url = f"{_LOGIN}{quote(values['part.tenant_id'], safe='')}/oauth2/v2.0/token"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return await send(
            http, turn, "POST", url, headers=headers, body=urlencode(form).encode(), further=further
        )

    try:
        answer = await token(_GRAPH)
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(answer, check.answer)
    if verdict.status is not Validation.VALID:
        return verdict
    roles = texts(_claims(json_of(answer).get("access_token")).get("roles"))
    labels = {"azure_graph"} if roles else set()
    labels |= {"azure_graph_admin"} if _RULES_THE_TENANT & set(roles) else set()
    turn.proven = with_services(verdict, labels, asked=bool(labels))
    try:
        given = json_of(await token(_MANAGEMENT, further=True)).get("access_token")
        if isinstance(given, str) and given.isascii() and given.isprintable():
            headers = {"Authorization": f"Bearer {given}"}
            seen = await send(http, turn, "GET", _SUBSCRIPTIONS, headers=headers, further=True)
            labels |= {"azure_management"} if seen.ok and json_of(seen).get("value") else set()
    except HttpError:
        pass  # the verdict stands without it
    return with_services(verdict, labels)


def _claims(token: Any) -> dict[str, Any]:
    """Read what a token says, without a proof: Microsoft has just handed it to us."""
    middle = token.split(".")[1] if isinstance(token, str) and token.count(".") == 2 else ""
    try:
        data = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
