"""The side of the validation benchmark that asks, in a process of its own so that its CPU time and memory can be measured.

python -m bench.validate_client FOLDER CHECKS A_SECOND, with what the issuers printed on standard input; prints the figures as JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.rules.model import Rule
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.issuer import MAX_CONCURRENT_CHECKS, MAX_CONNECTIONS

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


def _rule(folder: Path, number: int, host: str) -> Rule:
    """Write a rule file: a check is read from the file that its rule came from."""
    file = folder / f"issuer{number}.toml"
    file.write_text(_RULE.format(number=number, host=host))
    return parse_rule_file(file.read_text(), str(file))[0]


async def _main(folder: Path, checks: int, a_second: float, there: dict[str, Any]) -> dict[str, Any]:
    rules = [_rule(folder, number, host) for number, host in enumerate(there["hosts"])]
    wanted = [Credential(rules[n % len(rules)], f"key{n % len(rules)}_{n:032x}", {}) for n in range(checks)]
    egress = Egress.parse(
        [], [f"{host}:443=127.0.0.1:{there['port']}" for host in there["hosts"]], Path(there["ca"])
    )
    statuses: Counter[str] = Counter()
    async with open_http(egress, connections=MAX_CONNECTIONS, per_host=MAX_CONCURRENT_CHECKS) as http:
        cpu, began = time.process_time(), time.perf_counter()
        await check_all(
            Validator(http, ValidationMode.SAFE, requests_per_second=a_second),
            wanted,
            lambda _, verdict: statuses.update([verdict.status]),
        )
        return {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "statuses": statuses,
        }


if __name__ == "__main__":
    print(
        json.dumps(
            asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), json.load(sys.stdin)))
        )
    )
