"""Each kind of text that is no credential: examples of it, and near misses that are credentials."""

import base64
import json

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.kinds_of_hits import lower_at
from outcrop.scanner.kinds.classify import KINDS
from tests.support.rulesets import BASE62, BASE64, drawn, ruleset

HEX = "0123456789abcdef"


def hexadecimal(length: int) -> str:
    return drawn(HEX, length, length)


def base62(length: int) -> str:
    return drawn(BASE62, length, length)


def base64_text(length: int) -> str:
    return drawn(BASE64, length, length)


def encoded_object(**fields: str) -> str:
    return base64.b64encode(json.dumps(fields).encode()).decode()


def jwt(header: str, *, signature: bool) -> str:
    parts = [header, '{"sub": "crm", "iat": 1700000000}']
    encoded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, drawn(BASE62, 43, 43)] if signature else encoded)


def pem(*headers: str) -> str:
    body = "MII" + drawn(BASE64, 500, 1)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *headers, *lines, "-----END RSA PRIVATE KEY-----"])


SENTENCES = '  "title": "Sign in to the service",\n  "hint": "At least ten letters please",\n  "bye": "See you soon"\n'
UUID = "7d9f0a52-3b1c-4e86-9a47-c5d20e8f61b3"
PAGE = "<!DOCTYPE html>\n<html><body>\n"
MINIFIED = "function(a){if(b){c(d);e={f:1}}else{g(h[i]);}}" * 20

# The kind's id, texts of this kind, and near misses: texts whose values are reported.
CASES: dict[str, tuple[list[str], list[str]]] = {
    "package-version": (
        ['    js-tokens: "npm:^4.0.0"\n', '"minipass": "^7.1.2"', '"libsecret_token": "1:4.13+dfsg1-1+b1"'],
        [f'js-token: "{base62(24)}"', f"secret_token: 3{hexadecimal(20)}deb5{hexadecimal(40)}\n"],
    ),
    "lock-entry": (
        [f'  azure_storage "integrity": "sha512-{base64_text(86)}=="'],
        [f"AccountName=crm;AccountKey={base64_text(86)}=="],
    ),
    "named-digest": (
        [
            f'"hmac": "vault:v1:{base64_text(60)}"',
            f'"client_token":"hmac-sha256:{hexadecimal(64)}"', f"secret: sha256:{hexadecimal(64)}\n", f'"secret": "rl-sha256:{hexadecimal(64)}"'],
        [f'"client_token":"{hexadecimal(64)}"'],
    ),
    "digest-field": (
        [
            f'<a data-hydro-click-hmac="{hexadecimal(64)}">',
            f'"token_signature": "{hexadecimal(64)}"',
            f"MD5('salt' + 'password') = '{hexadecimal(32)}'", f'facebook: {{"app_secret_key":"","cookiehash":"{hexadecimal(32)}"}}'],
        [f'"hmac_secret": "{hexadecimal(64)}"', f'"facebook_app_secret":"{hexadecimal(32)}"'],
    ),
    "hashed-credential": (
        [f'"tokenHashed": "{base62(32)}"', f'hashed_secret_token = "{hexadecimal(40)}"'],
        [f'"client_secret": "{base62(32)}"'],
    ),
    "password-hash": (
        [f'{{"password": "{base64_text(43)}=", "hashIterations": 27500}}', f'["password", "{hexadecimal(64)}:{base62(16)}:1"]'],
        [f'{{"password": "{base64_text(43)}=", "port": 27500}}', f'password = "{hexadecimal(32)}:{base62(16)}"'],
    ),
    "salt": (
        [f'{{"salt": "{base64_text(22)}=="}}', f'"nonce": "{base62(32)}"'],
        [f'SESSION_SALT = "{hexadecimal(32)}"', f'"pepper": "{hexadecimal(32)}"'],
    ),
    "page-token": (
        [
            f'<input type="hidden" name="authenticity_token" value="{base64_text(86)}==">',
            f"""'form' => ['_token' => '{base62(32)}']""",
            f'"csrfmiddlewaretoken": "{base62(64)}"', f'<blockquote class="wp-embedded-content" data-secret="{base62(10)}">', f'<a href="index.php?controller=Tax&amp;add&amp;token={base62(40)}">'],
        [f'<input type="hidden" name="api_token" value="{base62(40)}">', f'<div data-secret="{base62(24)}">', f'<a href="https://crm.corp/?add&amp;token={base62(40)}">'],
    ),
    "saved-page": (
        [f'{PAGE}<div data-x="1"></div><script>var apiToken = "{base62(40)}";</script>', f'{PAGE}<script>{{"secret": "{base62(32)}"}}</script>'],
        [f'<div></div><script>var apiToken = "{base62(40)}";</script>', f'{PAGE}<script>{{"client_secret": "{base62(32)}"}}</script>'],
    ),
    "signed-link": (
        [
            f'"https://cdn.corp/5df1f6?e=1576142006&token={base62(40)}:{base62(27)}="',
            f'<a href="https://tag.corp/ns.html?id=7&gtm_auth={base62(22)}">',
            f"[![build](https://codecov.io/gh/corp/crm/branch/main/graph/badge.svg?token={base62(12)}a1)](x)",
            f"https://cdn.corp.net/a.mp4?token={base62(32)}&Expires=1700000000", f'"https://crm.corp/users?$top=3&$skiptoken={base62(60)}"', f'"https://cdn.corp/exp=1658063210~acl=%2Fvideo%2F7%2A~hmac={hexadecimal(64)}/video/7.mp4"'],
        [f'<a href="https://crm.corp/api?id=7&auth_token={base62(22)}">', f"https://crm.corp.net/v1/items?api_key={base62(32)}&limit=10"],
    ),
    "kubernetes-field": (
        [
            'v1.Secret{\n  StringData: map[string]string{\n    "secret-key": cfg.secretKey12,\n  },\n}\n',
            "kind: Secret\nstringData:\n  username: Oslo-admin9\n",
            "kind: Secret\nstringData:\n  password: changeme\n  name: gitea-Auth9\n",
            "kind: Secret\n  stringData:\n    password: changeme\n  other:\n    release: Oslo-9-winter\n", 'kind: Secret\nmetadata:\n  annotations:\n    last: |\n      {"kind":"Secret","stringData":{"answer":"x"}}\n  uid: 02f40c7a-0319-4936-9d3f-f47b8c4eb642\n'],
        ["kind: Secret\nstringData:\n  other: Wint3r!Oslo\n", "kind: Secret\nmetadata:\n  last: '{\"stringData\":{\"a\":\"b\"}}'\nstringData:\n  answer: Wint3r!Oslo\n"],
    ),
    "template": (
        [
            "credentials_block = f\"aws_iam_role={conn.extra_json['role_arn']}\"",
            "export DATABASE_URL='host=/run/pg port=5433 user=crm password=<my database password> dbname=crm'",
            "postgres://crm:[password]@db.corp/crm",
            "sudo tmutil setdestination https://user[:password]@host.corp/share", "JICOFO_AUTH_PASSWORD=`generateRandomPassword`", "`sudo x {{protocol://user[:contraseña]@host/path}}`"],
        ["postgres://crm:Wint3r!Oslo@db.corp/crm", "const PASSWORD = `Wint3r!Oslo`;"],
    ),
    "command-argument": (
        ["unzip a.zip && wget -P data/Files2024 https://corp.net/x"],
        ["mosquitto_pub -u crm -P Wint3r!Oslo -t x"],
    ),
    "account-line": (
        ["crm_password:x:1000:1000:Password Owner9:/home/crm:/bin/sh\n"],
        [],
    ),
    "key-fingerprint": (
        [f"Release GPG key: {hexadecimal(40).upper()}\n", f"gpg --recv-keys key: {hexadecimal(40).upper()}\n"],
        [f"api key: {hexadecimal(40)}\n"],
    ),
    "media": (
        [
            f"v{{x0?x>Di(8VQ{base62(6)}<+eE#mC)`p)*2pw={base62(5)}$XuL_;%L@{base62(6)}^z!~Qa",
            f'"token": "rO0AB{base64_text(60)}"'],
        ["x=1;pw=w1nter$Oslo_%42", f'"token": "{base62(60)}"'],
    ),
    "binary-data": (
        [f'\x02\x03\x04\x05\x06\x07\x08 password = "{base62(20)}" \x01\x02\x03'],
        [f'\x02 password = "{base62(20)}" \x01'],
    ),
    "minified-code": (
        [MINIFIED + 'a.password="Oslo!ab9",' + MINIFIED],
        [MINIFIED + f'a.apiKey="{base62(32)}",' + MINIFIED],
    ),
    "code": (
        [
            '{cases: {"@keywords": {token: "keyword.$0x12"}}}',
            "'password' => 'required|notIn:[name12]'",
            "paddedTokens = 'M D H h m s w W'.split(' ')",
            'token: "map[key1:val1 key2:val2 keyC:x9]"',
            "let x = {password: r.url.password9Field}",
            "user.password = hash;",
            'credentials += "PORT=50001;";',
            "private_key_password: BLOB",
            'custom_classes="bot-modal-regenerate-bot-api-key tippy-zulip-delayed-tooltip"', '<style name="passwordToggleTint">?attr/primary_field_03</style>', "ssl_ciphers HIGH:!aNULL:!MD5:!PSK:!RC4;", "'userpwd' => CURLOPT_USERPWD,", "setPassword(/* name:string, password:string*/)"],
        ['password = "Wint3r!Oslo"', 'user.password = "Wint3r!Oslo";', "'userpwd' => 'Wint3r!Oslo',"],
    ),
    "entry-key": (
        [f'{{"key": "{hexadecimal(24)}", "name": "photo.png"}}', f"Repository Key: {hexadecimal(64)}\n"],
        [f'"signing_key": "{hexadecimal(64)}"', f'config["Jwt:Key"] = "{base62(48)}";'],
    ),
    "public-key": (
        [f'disqusPublicKey = "{base62(64)}"', f'{{appId: "crm", apiKey: "{hexadecimal(32)}", indexName: "docs"}}', f'website_token: "{base62(24)}"'],
        [f'privateKey = "{base62(64)}"', f'{{appId: "crm", apiKey: "{hexadecimal(32)}", host: "docs"}}'],
    ),
    "address": (
        ["resourceKey = src/main/java/corp/**/*\n", "auth0js_urlv7: 'https://cdn.auth0.com/w2/auth0-7.6.1.min.js'", "--build-secret npmrc:.npmrc2", r"nmcli dev wifi connect Corp password \Program Files", r'{"contentpass": "https:\/\/crm.corp\/privacy\/policy\/25238980265745528"}'],
        [f'auth_key7: "{base62(40)}"'],
    ),
    "name-list": (
        [
            '["keydb_password", "keydb_conf12"]',
            'tokens = "ASSIGN9,DIV_ASSIGN,PLUS_ASSIGN,MINUS_ASSIGN,STAR_ASSIGN"', "| Secret | New |\n|---|---|\n| `GHCR_AUTH`/`DOCKERHUB_AUTH` | yes |\n", '// "P@ss1", "Password1", "Password22", "iloveyou!"', '["f0rged", "forgedpass", "jub0bs77", "kurohost"]'],
        ['token = "Wint3r,Oslo!7x"', f'["f0rged", "forgedpass", "{base62(32)}", "kurohost"]'],
    ),
    "other-argument": (
        [f'add("This is not the secret", "{base62(48)}");', f"new Auth('crm.auth.com', '{base62(32)}');", '_ = m.WriteCredentials("test-provider", "identity1", creds)', 'password = self.ldap_password("newuser_with_email")', '("/json/users/apns_device_token", "c0ffee01", 1)', '<territory type="PW">Palaawu</territory>', "Other values will not pass - use `uuid4_rfc4122` instead."],
        [f"set('api_secret', '{base62(32)}'); :secret, '{base62(32)}'", f'setToken("{base62(32)}");', 'new StaticCredentials("crm", "Wint3r!Oslo")', 'password = self.set_password("Wint3r!Oslo")', "pass - `Wint3r!Oslo`"],
    ),
    "empty-key": (
        [f"  tls.key: {base64.b64encode(b'-----BEGIN PRIVATE KEY-----' + end).decode()}" + chr(10) for end in (b"", b"-----END PRIVATE KEY-----")],
        [f"  tls.key: {base64_text(64)}\n"],
    ),
    "translation-marker": (
        ["'password' => 'crwdns780:0crwdne780:0',"],
        ["'password' => 'crwdns780:0-Winter42',"],
    ),
    "message": (
        ["{\n" + SENTENCES + '  "password": "sunshine",\n' + SENTENCES + "}"],
        ["{\n" + SENTENCES + '  "password": "Wint3r!Oslo",\n' + SENTENCES + "}"],
    ),
    "encrypted-key": (
        [pem("Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-256-CBC,{hexadecimal(32).upper()}", "")],
        [pem()],
    ),
    "unsigned-token": (
        [jwt('{"alg":"HS256","typ":"JWT"}', signature=False), jwt('{"alg":"none"}', signature=True)],
        [jwt('{"alg":"HS256","typ":"JWT"}', signature=True)],
    ),
    "password-word": (
        ["https://usuario:contraseña@crm.corp.net/x", "https://benutzer:passwort@crm.corp.net/x"],
        ["https://crm:contraK9x@crm.corp.net/x"],
    ),
    "malformed-token": (
        [f'token = "ghp_{base62(20)}"', f'token = "glpat-{base62(9)}"'],
        [f'token = "gtx_{base62(20)}"'],
    ),
    "spelled-words": (
        [r'MASTER_SECRET = "\x6d\x61\x73\x74\x65\x72\x20\x73\x65\x63\x72\x65\x74"', f'api_token = "{b"winter-oslo".hex()}"'],
        [rf'MASTER_SECRET = "{"".join(chr(92) + "x" + hexadecimal(26)[at : at + 2] for at in range(0, 26, 2))}"'],
    ),
    "stored-hash": (
        [
            f'<users user_id="2" username="bruno" password="{hexadecimal(40)}" salt="x"/>',
            f'{{"login": "crm", "password": "{hexadecimal(64)}"}}',
            f'String password = "{hexadecimal(128)}";',
        ],
        [f"DB_PASSWORD={hexadecimal(40)}", f'password = "{hexadecimal(32)}"'],
    ),
    "secret-name": (
        [
            "  remoteRef:\n    secretKey: source-key1\n",
            "passwordSecret: airflow-cluster1-mysql-password", "kubectl delete secret db-user-pass-96mffmfh4k", "existingSecret: crm-valkey-specific", '{{ .Values.auth.existingSecret | default "defwarp-valkey-specific" }}'],
        ["DB_PASSWORD=winter-oslo-42", f"clientSecret: {base62(32)}"],
    ),
    "label": (
        ['JFIELD_PASSWORD_TOO="パスワードは100文字未満である必要があります。"'],
        ['password = "Wint3r!Ösló"'],
    ),
    "number": (
        ['"output_tokens": 9223372036854775807'],
        [f'"output_tokens": "{base62(32)}"'],
    ),
    "session-id": (
        [
            f'clientRequestToken = "{hexadecimal(8)}-{hexadecimal(4)}-{hexadecimal(4)}-{hexadecimal(4)}-{hexadecimal(12)}"',
            "X-Tfs-Session: a08320f0-36f0-4baa-9ca6-93702c99d803"],
        ["X-Api-Key: a08320f0-36f0-4baa-9ca6-93702c99d803"],
    ),
    "entity-key": (
        [f'contentTypeKey: "{UUID}",', f'static readonly Guid RootMediaKey = new("{UUID}");', f"<Entry Key=&quot;{UUID}&quot;>"],
        [f'apiKey: "{UUID}",', f'static readonly Guid ApiKey = new("{UUID}");', f'contentTypeKey: "{base62(36)}",'],
    ),
    "time": (
        ["lastPasswordChangeDate: '2024-01-15T10:00:00.000Z',", "setPassword('token', 'Y-m-d H:i:s');"],
        ["lastPassword: '2024-01-15-Oslo!x',"],
    ),
    "invitation": (
        [f"[Zoom](https://zoom.corp/j/96963829102?pwd={base62(32)})", f"https://zoom-lfx.corp/meeting/917?password={UUID}"],
        [f"https://crm.corp/j/96963829102?pwd={base62(32)}"],
    ),
    "encoded-object": (
        [f"&authClient={encoded_object(name='Auth.swift', version='1.13.0')}"],
        [f"&authClient={encoded_object(name='crm', token='Wint3r!Oslo42')}"],
    ),
    "table-word": (
        ["| benutzername | passwort | befehl | wert |"],
        ["| Host | passwort | Wint3r!Oslo | wert |"],
    ),
    "constant-name": (
        ['const val PREFERENCE_PASSCODE_D1 = "PrefPinCode1"', f'REQUEST_KEY = "{base62(20)}"', "const SIDEBAR_WIDTH_STORAGE_KEY = 'wekan-sidebar-width';", 'KEY_LDAP_AUTHENTIFICATION_PASSWORD="ldap-authentication-password"'],
        [f'RELEASE_SECRET_KEY = "{base62(20)}"', "LDAP_PASSWORD=winter-oslo-42"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_kind_is_recognised_and_its_near_misses_are_reported(kind):
    examples, near_misses = CASES[kind]
    for text in examples:
        hits = find(ruleset(), text.encode(), Confidence.LOW, explain=True)
        of_kind = [hit for hit in hits if hit.kind == kind]
        assert of_kind, (text[:200], [(hit.rule.id, hit.kind) for hit in hits])
        limit = KINDS[kind].limit
        for hit in of_kind:
            assert hit.is_dropped == (limit is None)
            assert limit is None or limit.at_least(hit.confidence)
        if limit is None:
            reported = find(ruleset(), text.encode(), Confidence.LOW)
            assert not any(hit.start == other.start for hit in of_kind for other in reported)
    for text in near_misses:
        hits = find(ruleset(), text.encode(), Confidence.MEDIUM)
        assert hits, text
        assert all(hit.kind != kind for hit in hits)


def test_every_kind_says_what_it_is_and_has_a_test():
    by_path = {"translation", "lock-file"}
    untested = {"published", "other-cookie"}
    assert set(CASES) | by_path | untested == set(KINDS)
    for kind_id, kind in KINDS.items():
        assert kind.id == kind_id
        assert " " in kind.reason
        assert not kind.reason.endswith(".")


@pytest.mark.parametrize(
    ("kind", "path", "other_path"),
    [
        ("translation", b"app/src/main/res/values-fi/strings.xml", b"app/src/main/res/values/dimens.xml"),
        ("translation", b"web/locales/de.json", b"web/config/app.json"),
        ("lock-file", b"web/yarn.lock", b"web/yarn.yml"),
    ],
)
def test_the_path_of_a_file_lowers_values_that_were_found_by_their_name(kind, path, other_path):
    hit = find(ruleset(), b'"userPassword": "wachtvoort",\n', Confidence.LOW)[0]
    lowered = lower_at(hit, path)
    assert lowered is not None
    assert (lowered.kind, lowered.confidence) == (kind, Confidence.LOW)
    assert lower_at(hit, other_path) is hit
    hit.floor = Confidence.MEDIUM
    assert lower_at(hit, path) is None
    random = find(ruleset(), f'"apiSecret": "{base62(32)}"'.encode())[0]
    assert lower_at(random, b"web/locales/de.json") is random
