"""The client of the validation benchmark, in a process of its own to measure its CPU time and memory.

python -m bench.validate_client FOLDER CHECKS REQUESTS_PER_SECOND reads the line that `bench.validate_issuers`
printed from standard input, checks that many credentials, and prints seconds, CPU seconds and verdicts as
JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from outcrop.limits import ISSUER_CHECKS, ISSUER_CONNECTIONS
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.rules.model import Rule
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode, Validator

_RULE = """
issuer = "Issuer {number}"
[[rule]]
id = "issuer_{number}"
name = "A key"
secret_type = "a"
pattern = 'key{number}_[0-9a-f]{{32}}'
[rule.check]
url = "https://{host}/v1/me"
headers = {{ Authorization = "Bearer {{secret}}" }}
[[rule.check.answer]]
status = [200]
json = {{ id = "*" }}
result = "valid"
reason = "the key is accepted"
[[rule.check.answer]]
status = [401]
result = "invalid"
reason = "the key is refused"
[[rule.check.capability]]
each = {{ json = "scopes", prefix = "issuer_" }}
"""


def _write_rule(folder: Path, number: int, host: str) -> Rule:
    """Write a rule file for one issuer and return its rule; the engine reads the check from the file."""
    file = folder / f"issuer{number}.toml"
    file.write_text(_RULE.format(number=number, host=host))
    return parse_rule_file(file.read_text(), str(file))[0]


async def _check_credentials(
    folder: Path, count: int, requests_per_second: float, issuers: dict[str, Any]
) -> dict[str, Any]:
    """Check `count` credentials, spread over the issuers, and return the measured figures."""
    rules = [_write_rule(folder, number, host) for number, host in enumerate(issuers["hosts"])]
    credentials = [
        Credential(rules[n % len(rules)], f"key{n % len(rules)}_{n:032x}", {}) for n in range(count)
    ]
    egress = Egress.parse(
        [], [f"{host}:443=127.0.0.1:{issuers['port']}" for host in issuers["hosts"]], Path(issuers["ca"])
    )
    statuses: Counter[str] = Counter()
    async with open_http(egress, connections=ISSUER_CONNECTIONS, per_host=ISSUER_CHECKS) as http:
        cpu_start, start = time.process_time(), time.perf_counter()
        await check_all(
            Validator(http, ValidationMode.SAFE, requests_per_second=requests_per_second),
            credentials,
            lambda _, verdict: statuses.update([verdict.status]),
        )
        return {
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - cpu_start,
            "statuses": statuses,
        }


if __name__ == "__main__":
    figures = asyncio.run(
        _check_credentials(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), json.load(sys.stdin))
    )
    print(json.dumps(figures))
