"""The triggers of all rules compiled into the one database of the first pass."""

from collections.abc import Sequence

import hyperscan

from outcrop.scanner.patterns.prefilter import escape_literal, make_trigger, split_alternatives
from outcrop.scanner.patterns.regex_ast import literal_prefixes
from outcrop.scanner.rules.cache_format import group_by_trigger
from outcrop.scanner.rules.model import CredentialForm, Impact, Rule, RuleError
from outcrop.scanner.text.base64_archives import BASE64_ARCHIVE_PATTERNS
from outcrop.scanner.text.encodings import ESCAPE_PATTERNS, QUOTED_VALUE_PATTERN, base64_forms

_SHORTEST = 4  # characters of a literal that is looked for in base64
_TOGETHER = 16  # triggers that are tried at once when one of all is too much


def compile_rules(rules: Sequence[Rule]) -> tuple[Sequence[Rule], hyperscan.Database]:
    """Give the database, and the rules as they are looked for in it: what is too much as a whole, by its beginning."""
    try:
        return rules, _database(rules)
    except hyperscan.HyperscanError:
        rules = _shortened(rules)
    try:
        return rules, _database(rules)
    except hyperscan.HyperscanError:
        _refuse(rules)
        raise


def _database(rules: Sequence[Rule]) -> hyperscan.Database:
    triggers = list(group_by_trigger(rules))
    expressions = [(text, number) for number, one in enumerate(triggers) for text in split_alternatives(one)]
    for phase, literals in base64_forms({*_literals(rules), *_encoded(rules)}).items():
        expressions += [(escape_literal(literal), len(triggers) + phase) for literal in literals]
    expressions += [
        *((escape, len(triggers) + 4) for escape in ESCAPE_PATTERNS),
        (QUOTED_VALUE_PATTERN, len(triggers) + 5),
    ]
    expressions += [(word, len(triggers) + 6) for word in BASE64_ARCHIVE_PATTERNS]
    return _compiled(expressions)


def _compiled(expressions: list[tuple[str, int]]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode("latin-1") for text, _ in expressions],
        ids=[number for _, number in expressions],
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _shortened(rules: Sequence[Rule]) -> list[Rule]:
    """Give rules whose triggers are mere beginnings where the whole pattern is too much for the first pass."""
    whole = sorted({form.trigger.pattern for rule in rules for form in rule.forms if form.trigger.ends_match})
    groups = [whole[at : at + _TOGETHER] for at in range(0, len(whole), _TOGETHER)]
    refused = {trigger for group in groups if _refused(group) for trigger in group if _refused([trigger])}
    return [
        rule._replace(
            forms=tuple(_short(form) if form.trigger.pattern in refused else form for form in rule.forms)
        )
        for rule in rules
    ]


def _short(form: CredentialForm) -> CredentialForm:
    found = make_trigger(form.pattern.regex, allow_whole=False)
    shorter = form.trigger._replace(
        pattern=found.pattern, min_width=found.min_width, max_width=found.max_width, ends_match=False
    )
    return form._replace(trigger=shorter)


def _refused(triggers: Sequence[str]) -> str:
    """Give the reason for which the first pass refuses triggers; none where it takes them."""
    try:
        _compiled([(text, 0) for one in triggers for text in split_alternatives(one)])
    except hyperscan.HyperscanError as error:
        return str(error)
    return ""


def _refuse(rules: Sequence[Rule]) -> None:
    """Find the rule for which all of them were refused, and say so."""
    for rule in rules:
        for form in rule.forms:
            if error := _refused([form.trigger.pattern]):
                raise RuleError(f"{rule.origin}: rule {rule.id}: pattern is refused by Hyperscan ({error})")


def _literals(rules: Sequence[Rule]) -> list[bytes]:
    """Give what the rules' values begin with; of two literals, one of which is in the other, the shorter will do.

    Where a value is weighed, its form begins with what stands before it: in base64 the common words tell of that.
    """
    kept: list[bytes] = []
    forms = [form for rule in rules for form in rule.forms if form.judge is None]
    found = {
        literal
        for form in forms
        for literal in literal_prefixes(form.pattern.regex)
        if len(literal) >= _SHORTEST
    }
    for literal in sorted(found, key=len):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return kept


def _encoded(rules: Sequence[Rule]) -> set[bytes]:
    """Give the same in base64 once, to be found where it is encoded twice. For all rules that would take a tenth longer to compile."""
    opening = _literals([rule for rule in rules if rule.impact is Impact.CRITICAL])
    return {literal for literals in base64_forms(opening).values() for literal in literals}
