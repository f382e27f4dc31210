"""Fields of configurations beside a credential: metadata of Kubernetes objects, user names, templates."""

import re

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import word_set
from outcrop.scanner.generic.score import looks_generated_with_symbols
from outcrop.scanner.kinds.kind import Kind, Sample

KUBERNETES_FIELD = Kind(
    "kubernetes-field", "a field of a Kubernetes object that is no secret: metadata, a type, a path", None
)
NO_SECRET_FIELD = Kind("plain-field", "a user name, an address or a setting beside a credential")
TEMPLATE = Kind("template", "a template or an expression that something else fills in")
PASSWORD_WORD = Kind("password-word", "the word for password in another language")
SECRET_NAME = Kind("secret-name", "the name of a secret that is kept elsewhere")
OTHER_COOKIE = Kind("other-cookie", "the session cookie of an application, not of AWS")

_KUBERNETES_RULES = ("kubernetes_secret",)
_PLAIN_FIELDS = word_set("""
    apiversion kind name namespace type provider username user users host hostname server port database
    dbname url uri endpoint region zone image labels annotations path mountpath issuer email addresstype
    protocol schedule project projectid clientid driver engine environment env mode level domain registry
    organization org accountid appid bucket prefix sslmode version identity owner role scope group audience
    arn addr address chart values interval realm tenant tenantid subject title description locale timezone
    command args expiration authextragroups tokenid heritage release cluster component medium tier leaseid
    accessid certificateauthoritydata clientcertificatedata
""")
_TEMPLATE = regex(
    r".*(?:\{\{|\}\}|<%|%>|\$\{|\$\(|#\{|\{%|%\}|\[\[\w|%\([\w.]+\)s|<[A-Za-z][\w -]{1,60}>?).*"
    r"|[<\[{(].*|[\w -]*[\]}>]{1,2}|[A-Z]{4,}[0-9]?",
    re.DOTALL,
)
_MAX_TEMPLATE = 400
_FORMATTED_STRING = regex(rb"(?:^|[^0-9A-Za-z_])(?:[fF][rRbB]?|[rRbB][fF]|\$@?)[\"']{1,3}$")
_FIELD = regex(r"\{[A-Za-z_][^{}]*\}?")
_HOST_AFTER_TEMPLATE = regex(r"@[\w.-]+(?::[0-9]{1,5})?(?:/.*)?")
_EXPRESSION = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_][\w.]*[(\[{].*|%\[?[0-9a-z].{0,4}")
_MAX_WORD = 16  # characters of a short value of a Secret
_TIME = regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,12}Z?")
_OBJECT_NAME = regex(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
_KEY_OF_STORE = regex(r"[a-z]+-(?:key|secret|password|token)-?[0-9]{0,2}")
_OBJECT_WORDS = word_set(
    "secret secrets key keys password passwords credential credentials creds token tokens"
)
_OWN_WORDS = word_set("my super your very change some")  # of a secret that somebody made up
_KUBECTL_SECRET = regex(rb"\b(?:kubectl|oc)\s[^\n|;&]{0,80}\bsecrets?[ /]$")
_EXISTING_SECRET = regex(rb"(?i)existing_?secret(?:name)?\b[^\n]{0,60}$")
_PASSWORD_SCHEME = regex(r"\{[A-Za-z0-9.-]{2,14}\}[^\s{}]+$")  # `{SHA}…`, as servers store it
_PASSWORD_WORDS = regex(
    r"(?i)(?:(?:la|el|das|mon|ton|votre|tu|su|mi|dein|ihr|il|a)[-_ ]?)?(?:contrase(?:n|ñ|%c3%b1)a|passwor[td]"
    r"|pass[-_ ]?wort|mot[-_ ]?de[-_ ]?passe|motpasse|mdp|clave|senha|palavra[-_ ]?passe|wachtwoord|has[lł]o"
    r"|heslo|jelsz[oó]|salasana|l[oö]senord|adgangskode|passord|kodeord|parola|lozinka|[sş]ifre|sifra|kennwort"
    r"|geslo|parool|slapta[zž]odis|parole|contrasenya|pasahitza|pass|passwd|pw|pwd|пароль|密码|密碼|パスワード"
    r"|비밀번호|kata[-_ ]?sandi|m[aậ]t[-_ ]?kh[aẩ]u)[0-9]{0,3}[!*]{0,2}"
)


def is_kubernetes_field(sample: Sample) -> bool:
    """Whether a value that a rule takes for one of a Kubernetes Secret is a field of another object."""
    if not sample.rule_id.startswith(_KUBERNETES_RULES):
        return False
    name = sample.name.lower()
    last = re.split(r"[._/-]", name)[-1]
    if sample.rule_id == "kubernetes_secret_plain" and (
        not _is_in_string_data(sample) or _is_expression(sample)
    ):
        return True
    value = sample.value
    return (
        (sample.rule_id == "kubernetes_secret" and _is_no_base64(sample))
        or re.sub(r"[._-]", "", name) in _PLAIN_FIELDS
        or last in _PLAIN_FIELDS
        or name.startswith(("app.kubernetes.io", "kubernetes.io", "helm.sh", "usage-bootstrap"))
        or _TIME.fullmatch(value) is not None
        or re.fullmatch(
            r"/[\w./-]*|[A-Z][a-z]+(?:[A-Z][a-z]+)*|kubernetes\.io/[\w-]+|[\w.-]+/v[0-9]\w*", value
        )
        is not None
    )


def _is_expression(sample: Sample) -> bool:
    """Whether an unquoted value is an expression of a program: a member, a call, or an entry with a comma."""
    if sample.before[-1:] in {b'"', b"'"}:
        return False
    return sample.value.endswith(",") or _EXPRESSION.fullmatch(sample.value) is not None


def _is_no_base64(sample: Sample) -> bool:
    """Whether a short value of a Secret is a word that only happens to be base64: of no ASCII text."""
    return sample.end - sample.start <= _MAX_WORD and not sample.value.isascii()


def _is_in_string_data(sample: Sample) -> bool:
    """Whether the value is in the block below `stringData:`: no line between is indented less.

    In JSON, whether the brace after it is not closed before the value.
    """
    heading = sample.data.rfind(b"stringData", max(0, sample.start - 6_000), sample.start)
    if heading < 0:
        return True
    if b"{" in sample.data[heading : heading + 20]:
        between = sample.data[heading : sample.start]
        return between.count(b"{") > between.count(b"}")
    heading_start = sample.data.rfind(b"\n", 0, heading) + 1
    indent = len(sample.data[heading_start:heading].lstrip(b"-")) if heading > heading_start else 0
    for line in sample.data[heading : sample.start].split(b"\n")[1:]:
        text = line.lstrip(b" \t")
        if text and text[:1] not in {b"#", b"\r"} and len(line) - len(text) <= indent:
            return False
    return True


def is_template(sample: Sample) -> bool:
    """Whether the value has an expression of a template language or a name between angle brackets.

    In a shell `PASSWORD=`…`` is the output of a command.
    """
    value = sample.value
    if sample.is_generic and _is_filled_in_beside(sample):
        return True
    return (
        not value.startswith("-----BEGIN")
        and _PASSWORD_SCHEME.match(value) is None
        and len(value) < _MAX_TEMPLATE
        and _TEMPLATE.fullmatch(value) is not None
        and not looks_generated_with_symbols(value)
        and not (sample.is_generic and (value[:1] in "([{<" or value.isalnum()))
    )


def _is_filled_in_beside(sample: Sample) -> bool:
    """Whether the text beside the value shows an expression: a command, a variable, a part of an address."""
    return (
        (sample.name.isupper() and sample.before.endswith(b"=`"))
        or (sample.value.endswith("$") and sample.after.startswith((b"{", b"(")))
        or (_FORMATTED_STRING.search(sample.before) is not None and _FIELD.search(sample.value) is not None)
        or (sample.before.endswith((b">", b"}")) and _HOST_AFTER_TEMPLATE.fullmatch(sample.value) is not None)
    )


def is_password_word(sample: Sample) -> bool:
    """Whether the value is only a word for password in some language."""
    return len(sample.value) <= 24 and _PASSWORD_WORDS.fullmatch(sample.value) is not None


def is_secret_name(sample: Sample) -> bool:
    """Whether the value is the name of a secret: `dbSecret: crm-db-password`, `kubectl get secret crm-db`."""
    if not sample.is_generic or _OBJECT_NAME.fullmatch(sample.value) is None:
        return False
    if _KUBECTL_SECRET.search(sample.before) or _EXISTING_SECRET.search(sample.before):
        return True
    if sample.name == "secretKey" and sample.before[-1:] not in {b'"', b"'"}:  # of an ExternalSecret
        return _KEY_OF_STORE.fullmatch(sample.value) is not None
    words = sample.value.split("-")
    return (
        sample.name_words[-1:] == ["secret"]
        and not sample.name.isupper()
        and len(words) > 2
        and not _OBJECT_WORDS.isdisjoint(words)
        and _OWN_WORDS.isdisjoint(words)
    )


def is_other_cookie(sample: Sample) -> bool:
    """Whether what is reported as an AWS session key is a cookie or a token of something else."""
    if sample.rule_id != "aws_session_key" or re.match(r"IQoJb3JpZ2lu|FwoG|FQoG|AQoD|ASIA", sample.value):
        return False
    return re.search(rb"(?i)aws|amz|ASIA[A-Z2-7]{16}", sample.before[-200:] + sample.around) is None
