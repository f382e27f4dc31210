"""Write lines that are almost credentials: examples of the rule files with one defect, and ordinary code."""

import base64
import itertools
import random
import re
import string
from collections.abc import Callable, Sequence

from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import Rule, Strength

LineMaker = Callable[[random.Random], str]
_MAX_LENGTH = 400  # of a line; longer examples, such as key blocks, are skipped
_EXPANSIONS = 300  # different values that each example is filled with


def near_miss_kinds(rules: Sequence[Rule]) -> dict[str, LineMaker]:
    """Return the near misses that are made from the rules' examples, by kind: functions that write a line."""
    examples = [(rule, example) for rule in rules for example in rule.examples if "\n" not in example]
    with_prefix = [
        (rule, example)
        for rule, example in examples
        if rule.forms[0].strength in {Strength.PREFIX, Strength.CHECKSUM}
    ]
    context = [(rule, example) for rule, example in examples if rule.forms[0].strength is Strength.CONTEXT]
    checksum = [(rule, example) for rule, example in examples if rule.forms[0].strength is Strength.CHECKSUM]
    bare = _with_defect(context, lambda value, _: f"\0{value}\0")
    return {
        "too short": _with_defect(with_prefix, lambda value, _: value[: min(len(value) * 2 // 3, 18)]),
        "a wrong character": _with_defect(
            with_prefix, lambda value, _: f"{value[: len(value) // 2]}~!{value[len(value) // 2 :]}"
        ),
        "a wrong checksum": _with_defect(
            checksum,
            lambda value, chance: value[:-10] + "".join(chance.choices(string.ascii_lowercase, k=10)),
        ),
        "too regular": _with_defect(with_prefix, lambda value, _: value[:8] + "ab" * (len(value) // 2 - 4)),
        "a placeholder": _with_defect(with_prefix, lambda value, _: f"{value[:8]}EXAMPLE{value[15:]}"),
        "a word without a value": _with_defect(context, lambda _, __: ""),
        "a value without its word": lambda chance: bare(chance).split("\0")[1],
        "a password to fill in": lambda chance: (
            f'password = "${{{"".join(chance.choices(string.ascii_letters, k=12))}}}"'
        ),
        "escapes": lambda chance: (
            "text = '"
            + "".join(f"\\u{ord(character):04x}" for character in chance.choices(string.ascii_letters, k=12))
            + "'"
        ),
        "base64": lambda chance: f'blob = "{base64.b64encode(b"key ghp_" + chance.randbytes(40)).decode()}"',
    }


def code_kinds() -> dict[str, LineMaker]:
    """Return the kinds that code, configuration and manuals are full of: a keyword without a credential."""
    letters, digits = string.ascii_lowercase, string.digits
    alphabets = {
        "a": letters,
        "A": letters.upper(),
        "h": digits + "abcdef",
        "x": string.ascii_letters + digits,
    }

    def line(template: str) -> LineMaker:
        return lambda chance: re.sub(
            r"<([aAhx])(\d+)>",
            lambda match: "".join(chance.choices(alphabets[match[1]], k=int(match[2]))),
            template,
        )

    templates = (
        '<x4>_password = "changeme<x2>"',
        "<a4>.password=password",
        'aws_key = "AKIA<A9>EXAMPLE"',
        "token: ghp_<x36>",
        'api_key="your-api-key-<x8>"',
        'password = os.environ["<A6>_PASSWORD"]',
        '<a5>_token = os.getenv("<A5>_TOKEN")',
        "  apiKey: process.env.<A5>_API_KEY,",
        'stripe = "sk_live_xxxxxxxxxxxxxxxxxxxxxxxx<x8>"',
        'url = "postgres://user:password@<a8>.local/db"',
        "AUTH_TOKEN=${<A8>_TOKEN}",
        'url = "postgres://${USER}:${PASS}@<a8>.local/db"',
        "commit <h40>",
        "    --hash=sha256:<h64>",
        '  integrity "sha512-<x86>=="',
        "id: <h8>-<h4>-4<h3>-a<h3>-<h12>",
        "api_key_id: <h8>-<h4>-4<h3>-a<h3>-<h12>",
        "  password: {{ .Values.<a6>.password }}",
        "TOKEN=<your-<a6>-token>",
        '<input type="password" name="password" id="<a6>" placeholder="Password">',
        "password: ******** <a4>",
        "def check_password(self, <a6>, password=None):",
        "        self.<a5>_token = token",
        "-----BEGIN RSA PRIVATE KEY----- <x6>",
        "The password for <a6> must be at least 12 characters long and the secret key is rotated.",
        "data:image/png;base64,<x200>",
        'secret_name: "<a5>-<a6>-credentials"',
        'assert client.login(username="<a5>", password="test")',
        's = "caf\\u00e9 \\u0041<a5>"',
        "GET /search?q=<a5>%20<a5>%2F<a4>%3D1",
    )
    return {template: line(template) for template in templates}


def repeated_shapes() -> list[str]:
    """Return short texts that are almost an assignment; repeated, they could take quadratic time.

    They are the combinations of names, separators, quotes and values, and rows of connection strings.
    """
    names = ("secret", "password", "token", "api_key", "DB_PASSWORD", "tokens", "identified by", "PASS")
    separators = (
        ",",
        ";",
        "\t",
        " ",
        ":",
        "=",
        ": ",
        " = ",
        "=>",
        "|",
        '":"',
        "(",
        ">",
        ":=",
        "->",
        "/",
        "{",
    )
    values = ("", "x", "changeme", '"x"', "'changeme'", "${VAR}", "a" * 40)
    rows = (
        "Server=db;Database=a;User Id=sa;Password=${P};",
        "postgres://user:${PASS}@host/db",
        "jdbc:mysql://h/db?user=a&password=${P}",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=${K};",
        "Data Source=h;Password=changeme",
        "redis://:${P}@h",
    )
    return [*map("".join, itertools.product(names, separators, values)), *rows]


def _with_defect(
    examples: Sequence[tuple[Rule, str]], spoil: Callable[[str, random.Random], str]
) -> LineMaker:
    """Return a function that writes a random example after `spoil` has changed its value."""

    def line(chance: random.Random) -> str:
        while True:
            rule, example = chance.choice(examples)
            text, values = split_marked_values(
                expand_template(example, f"{rule.id} {chance.randrange(_EXPANSIONS)}")
            )
            if values and len(text) <= _MAX_LENGTH:
                # Without the name before the value: with it, the generic detector would find a credential.
                context_text = text if rule.forms[0].strength is Strength.CONTEXT else f'    "{values[0]}",'
                return context_text.replace(values[0], spoil(values[0], chance))

    return line
