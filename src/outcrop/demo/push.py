"""Call the push hook of the demo's account, as the code host does after a push."""

import hashlib
import hmac
import json
import urllib.request
from uuid import uuid4

from outcrop.demo.code_host import HOST
from outcrop.demo.repositories import MOBILE, OWNER
from outcrop.domain.errors import OperatorError
from outcrop.services.hooks.manage import NewHook

_TIMEOUT = 10.0  # seconds


def call_hook(hook: NewHook) -> None:
    """Deliver a push to the mobile app; raise OperatorError if the service does not take it."""
    address = f"https://{HOST}/{OWNER}/{MOBILE.name}"
    body = json.dumps(
        {
            "ref": "refs/heads/main",
            "repository": {
                "full_name": f"{OWNER}/{MOBILE.name}",
                "html_url": address,
                "clone_url": f"{address}.git",
            },
            "pusher": {"name": "kim"},
        }
    ).encode()
    signature = hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
    request = urllib.request.Request(  # noqa: S310 - the service itself, on this machine
        hook.url,
        body,
        {
            "Content-Type": "application/json",
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": str(uuid4()),
            "X-Hub-Signature-256": f"sha256={signature}",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310
            pass
    except OSError as error:
        raise OperatorError(f"the push hook of the example was not called: {error}") from None
