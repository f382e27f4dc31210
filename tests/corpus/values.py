"""Made-up values for the corpus: passwords as people and programs make them, names, hosts and words."""

import random
import re
import string
from collections.abc import Callable

from outcrop.scanner.rules.example_templates import expand_template

_WORDS = [
    "amber", "anchor", "arrow", "atlas", "aurora", "badger", "basalt", "beacon", "birch", "bison",
    "breeze", "bronze", "canyon", "cedar", "cinder", "clover", "cobalt", "comet", "copper", "coral",
    "crater", "crimson", "delta", "dune", "ember", "falcon", "fjord", "flint", "garnet", "glacier",
    "granite", "harbor", "hazel", "heron", "indigo", "iris", "ivory", "jasper", "juniper", "kestrel",
    "lagoon", "lantern", "larch", "lotus", "lunar", "magnet", "maple", "marble", "meadow", "meteor",
    "mirror", "nebula", "nectar", "oasis", "ocean", "onyx", "opal", "orbit", "orchid", "osprey", "otter",
    "pebble", "pepper", "phoenix", "pine", "plasma", "prairie", "quartz", "quiver", "raven", "reef",
    "ridge", "river", "saffron", "sierra", "silver", "slate", "solar", "sparrow", "spruce", "summit",
    "thistle", "thunder", "timber", "topaz", "tundra", "umber", "valley", "velvet", "violet", "walnut",
    "willow", "winter", "zenith", "zephyr",
]  # fmt: skip
_FIRST = [
    "anna", "ben", "carla", "david", "eva", "frank", "gina", "henry", "ida", "jonas", "karl", "lena",
    "mario", "nina", "oscar", "paula", "quinn", "rosa", "simon", "tara", "uwe", "vera", "willi",
]  # fmt: skip
_LEET = str.maketrans("aeiost", "431057")
_SAFE = string.ascii_letters + string.digits
_SIGNS = "!#$%*+-.:?@_~"
_OWN = re.compile(
    r"\{\{(pw|pwurl|pwxml|token|django|user|host|word|snake|camel|Camel|UPPER|starfill|pick [^{}]+)\}\}"
)


def fill(template: str, chance: random.Random) -> str:
    """Fill the placeholders of a template.

    Names and passwords are generated here, random characters as in the examples of rules.
    ⟦ and ⟧ become literal double braces.
    """
    text = _OWN.sub(
        lambda match: _MAKERS[match[1].partition(" ")[0]](chance, match[1].partition(" ")[2]), template
    )
    return expand_template(text, str(chance.random())).replace("⟦", "{{").replace("⟧", "}}")


def _word(chance: random.Random) -> str:
    return chance.choice(_WORDS)


def _drawn(chance: random.Random, alphabet: str, low: int, high: int) -> str:
    """Draw a value with at least one digit and one letter."""
    while True:
        value = "".join(chance.choice(alphabet) for _ in range(chance.randint(low, high)))
        if any(c.isdigit() for c in value) and any(c.isalpha() for c in value):
            return value


def _password(chance: random.Random, signs: str = _SIGNS) -> str:
    """Make a password of one of the usual kinds: of words with digits and signs, or drawn by a program."""
    word, other, sign = _word(chance), _word(chance), chance.choice(signs)
    kinds: list[Callable[[], str]] = [
        lambda: word.title() + str(chance.randint(10, 2099)) + sign,
        lambda: word.translate(_LEET).title() + sign + str(chance.randint(1, 99)) + other[:3],
        lambda: f"{word}-{other}-{chance.randint(10, 99)}-{_word(chance)}",
        lambda: _drawn(chance, _SAFE, 10, 20),
        lambda: _drawn(chance, string.ascii_lowercase + string.digits, 8, 14),
        lambda: _drawn(chance, _SAFE, 7, 12) + sign + _drawn(chance, _SAFE, 2, 6),
        lambda: "".join(chance.choice("bcdfghjkmnpqrstvwxz") for _ in range(chance.randint(8, 12))),
        lambda: word[:4].upper() + sign + other[:4] + str(chance.randint(100, 999)),
    ]
    return chance.choice(kinds)()


def _token(chance: random.Random) -> str:
    return chance.choice(
        [
            "{{hex 32}}",
            "{{hex 40}}",
            "{{hex 64}}",
            "{{base62 24}}",
            "{{base62 32}}",
            "{{base62 40}}",
            "{{base64url 43}}",
            "{{uuid}}",
            "{{base36 25}}",
            "{{UPPER 4}}{{base62 28}}",
            "{{base32 32}}",
        ]
    )


def _snake(chance: random.Random) -> str:
    return f"{_word(chance)}_{_word(chance)}"


_MAKERS: dict[str, Callable[[random.Random, str], str]] = {
    "pw": lambda chance, _: _password(chance),
    "pwurl": lambda chance, _: _password(chance, "-._~!"),
    "pwxml": lambda chance, _: _password(chance, "!#*+-.:?@_~"),
    "token": lambda chance, _: _token(chance),
    "django": lambda chance, _: _drawn(
        chance, string.ascii_lowercase + string.digits + "!@#$%^&*(-_=+)", 50, 50
    ),
    "user": lambda chance, _: (
        chance.choice(_FIRST) + chance.choice(["", "_" + _word(chance), "." + _word(chance)])
    ),
    "host": lambda chance, _: (
        f"{_word(chance)}.{_word(chance)}.{chance.choice(['corp', 'internal', 'lan', 'io'])}"
    ),
    "word": lambda chance, _: _word(chance),
    "snake": lambda chance, _: _snake(chance),
    "camel": lambda chance, _: _word(chance) + _word(chance).title(),
    "Camel": lambda chance, _: _word(chance).title() + _word(chance).title(),
    "UPPER": lambda chance, _: _word(chance).upper(),
    "starfill": lambda chance, _: "*" * chance.randint(6, 12),
    "pick": lambda chance, names: chance.choice(names.split()),
}
