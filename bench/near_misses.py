"""What is almost a credential, of every kind and of every rule: made from the examples in the rule files, each spoilt in one way."""

import base64
import random
import string
from collections.abc import Callable, Sequence

from outcrop.scanner.rule import Rule, Strength
from outcrop.scanner.sample import expand, marked

Line = Callable[[random.Random], str]
_LONGEST = 400  # a line is a line: key blocks are left out
_TEMPLATES = 300  # expansions that are kept for each kind, from which lines are drawn


def kinds(rules: Sequence[Rule]) -> dict[str, Line]:
    """Give the kinds of near misses, each a function that writes one line."""
    every = [(rule, example) for rule in rules for example in rule.examples if "\n" not in example]
    sure = [(rule, example) for rule, example in every if rule.forms[0].strength in {Strength.PREFIX, Strength.CHECKSUM}]
    context = [(rule, example) for rule, example in every if rule.forms[0].strength is Strength.CONTEXT]
    checksum = [(rule, example) for rule, example in every if rule.forms[0].strength is Strength.CHECKSUM]
    bare = _spoilt(context, lambda value, _: f"\0{value}\0")
    return {
        "too short": _spoilt(sure, lambda value, _: value[: min(len(value) * 2 // 3, 18)]),
        "a wrong sign": _spoilt(sure, lambda value, _: f"{value[: len(value) // 2]}~!{value[len(value) // 2 :]}"),
        "a wrong checksum": _spoilt(checksum, lambda value, chance: value[:-10] + "".join(chance.choices(string.ascii_lowercase, k=10))),
        "too even": _spoilt(sure, lambda value, _: value[:8] + "ab" * (len(value) // 2 - 4)),
        "a placeholder": _spoilt(sure, lambda value, _: f"{value[:8]}EXAMPLE{value[15:]}"),
        "a word without a value": _spoilt(context, lambda _, __: ""),
        "a value without its word": lambda chance: bare(chance).split("\0")[1],
        "a password to fill in": lambda chance: f'password = "${{{"".join(chance.choices(string.ascii_letters, k=12))}}}"',
        "escapes": lambda chance: "text = '" + "".join(f"\\u{ord(sign):04x}" for sign in chance.choices(string.ascii_letters, k=12)) + "'",
        "base64": lambda chance: f'blob = "{base64.b64encode(b"key ghp_" + chance.randbytes(40)).decode()}"',
    }


def _spoilt(examples: Sequence[tuple[Rule, str]], spoil: Callable[[str, random.Random], str]) -> Line:
    """Give a function that writes an example with its value spoilt, another value each time."""

    def line(chance: random.Random) -> str:
        while True:
            rule, example = chance.choice(examples)
            text, values = marked(expand(example, f"{rule.id} {chance.randrange(_TEMPLATES)}"))
            if values and len(text) <= _LONGEST:
                # A name before a value makes it a generic credential, which is a hit and no near miss.
                around = text if rule.forms[0].strength is Strength.CONTEXT else f'    "{values[0]}",'
                return around.replace(values[0], spoil(values[0], chance))

    return line
