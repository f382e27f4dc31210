"""Compile the triggers of all rules into one Hyperscan database.

The database also has the triggers for encoded text: the base64 forms of the rules' literals, escapes, escaped
quotes and archives in base64. `RuleSet` says which numbers they have.
"""

from collections.abc import Sequence

import hyperscan

from outcrop.scanner.engine.ruleset import decoding_triggers
from outcrop.scanner.patterns.prefilter import escape_literal, make_trigger, split_alternatives
from outcrop.scanner.patterns.regex_ast import literal_prefixes
from outcrop.scanner.rules.cache_format import group_by_trigger
from outcrop.scanner.rules.model import CredentialForm, Impact, Rule, RuleError
from outcrop.scanner.text.base64_archives import BASE64_ARCHIVE_PATTERNS
from outcrop.scanner.text.encodings import ESCAPE_PATTERNS, QUOTED_VALUE_PATTERN, base64_forms

MIN_BASE64_LITERAL = 4  # characters; a shorter literal would match in any base64 text
TRIGGERS_PER_TEST = 16  # triggers that are test-compiled together to find those that Hyperscan refuses


def compile_rules(rules: Sequence[Rule]) -> tuple[Sequence[Rule], hyperscan.Database]:
    """Return the rules and their Hyperscan database.

    A rule whose whole pattern is too large for a trigger is returned with a shorter trigger. Raise RuleError
    if Hyperscan refuses that too, and HyperscanError if it accepts each rule but not all together.
    """
    try:
        return rules, _compile_database(rules)
    except hyperscan.HyperscanError:
        rules = _shorten_refused_triggers(rules)
    try:
        return rules, _compile_database(rules)
    except hyperscan.HyperscanError:
        _raise_for_refused_rule(rules)
        raise


def _compile_database(rules: Sequence[Rule]) -> hyperscan.Database:
    """Return the database with the triggers of the rules and of encoded text.

    Raise HyperscanError if Hyperscan refuses one.
    """
    triggers = list(group_by_trigger(rules))
    count = len(triggers)
    escape, escaped_quote, archive = decoding_triggers(count)
    expressions = [
        (text, number) for number, pattern in enumerate(triggers) for text in split_alternatives(pattern)
    ]
    for phase, literals in base64_forms({*_literals(rules), *_base64_literals(rules)}).items():
        expressions += [(escape_literal(literal), count + phase) for literal in literals]
    expressions += [(pattern, escape) for pattern in ESCAPE_PATTERNS]
    expressions.append((QUOTED_VALUE_PATTERN, escaped_quote))
    expressions += [(pattern, archive) for pattern in BASE64_ARCHIVE_PATTERNS]
    return _compile(expressions)


def _compile(expressions: list[tuple[str, int]]) -> hyperscan.Database:
    """Return a database of patterns, each with the number that Hyperscan reports for its matches.

    Raise HyperscanError if Hyperscan refuses them.
    """
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode("latin-1") for text, _ in expressions],
        ids=[number for _, number in expressions],
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _shorten_refused_triggers(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules, with shorter triggers where Hyperscan refuses a whole pattern as a trigger."""
    patterns = sorted(
        {form.trigger.pattern for rule in rules for form in rule.forms if form.trigger.ends_match}
    )
    groups = [patterns[at : at + TRIGGERS_PER_TEST] for at in range(0, len(patterns), TRIGGERS_PER_TEST)]
    refused = {pattern for group in groups if _refusal(group) for pattern in group if _refusal([pattern])}
    return [
        rule._replace(
            forms=tuple(
                _shorten_trigger(form) if form.trigger.pattern in refused else form for form in rule.forms
            )
        )
        for rule in rules
    ]


def _shorten_trigger(form: CredentialForm) -> CredentialForm:
    """Return the form with a shorter trigger, which matches only the beginning of the pattern."""
    found = make_trigger(form.pattern.regex, allow_whole=False)
    shorter = form.trigger._replace(
        pattern=found.pattern, min_width=found.min_width, max_width=found.max_width, ends_match=False
    )
    return form._replace(trigger=shorter)


def _refusal(patterns: Sequence[str]) -> str:
    """Return the reason why Hyperscan refuses these triggers; "" if it accepts them."""
    try:
        _compile([(text, 0) for pattern in patterns for text in split_alternatives(pattern)])
    except hyperscan.HyperscanError as error:
        return str(error)
    return ""


def _raise_for_refused_rule(rules: Sequence[Rule]) -> None:
    """Raise RuleError for the first rule with a refused trigger; return if Hyperscan accepts all triggers."""
    for rule in rules:
        for form in rule.forms:
            if reason := _refusal([form.trigger.pattern]):
                raise RuleError(f"{rule.origin}: rule {rule.id}: pattern is refused by Hyperscan ({reason})")


def _literals(rules: Sequence[Rule]) -> list[bytes]:
    """Return the literals that the rules' values begin with, without those that contain a shorter one.

    Literals below MIN_BASE64_LITERAL bytes are left out, and so are the literals of forms with a judge: such
    a form begins with a name, and `base64_forms` adds the common names itself.
    """
    found = {
        literal
        for rule in rules
        for form in rule.forms
        if form.judge is None
        for literal in literal_prefixes(form.pattern.regex)
        if len(literal) >= MIN_BASE64_LITERAL
    }
    kept: list[bytes] = []
    for literal in sorted(found, key=len):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return kept


def _base64_literals(rules: Sequence[Rule]) -> set[bytes]:
    """Return the base64 forms of the literals of critical rules, in all three alignments.

    `base64_forms` adds those of common words such as `password`, and leaves out forms that are too short. The
    caller encodes the result in base64 once more, to find values that are encoded twice. Only critical rules
    count: with all rules, the Hyperscan database would take a tenth longer to compile.
    """
    literals = _literals([rule for rule in rules if rule.impact is Impact.CRITICAL])
    return {literal for forms in base64_forms(literals).values() for literal in forms}
