"""The shapes that a value can have, each by patterns that match all of it; the first shape that fits counts."""

# Endings of files and hosts.
_FILES = (
    "json|ya?ml|txt|py|jsx?|tsx?|go|rb|php|java|cs|html?|pem|key|crt|cer|p12|pfx|jks|keystore|env|conf|cfg|ini|toml"
    "|properties|xml|md|sh|png|svg|jpe?g|gif|css|log|sock|gz|zip|exe|dll|so|bin|dat|db|sql|csv|pub|asc|kdbx|lock|war|jar|ova"
    "|tgz|whl|com|org|net|io|app|dev|cloud|local|internal|localdomain"
)
SHAPES: dict[str, tuple[str, ...]] = {
    # Tells by its beginning that it opens nothing, however much it looks drawn by chance: a key that pages show, what a database
    # keeps of a password, the public half of a pair.
    "known": (
        r"pk_(?:live|test)_[0-9A-Za-z]{8,}",
        r"SCRAM-SHA-(?:1|256|512)\$.*",
        r"md5[0-9a-f]{32}",
        r"\*[0-9A-F]{40}",
        r"age1[02-9ac-hj-np-z]{58}",
        r"0x[0-9A-Fa-f]{40}",  # where a contract or an account of a chain is
        r"A(?:IDA|ROA|GPA|IPA|NPA|NVA|SCA)[A-Z0-9]{16,17}",  # who somebody is at AWS
    ),
    # Says where the value stands: a template, a variable, a vault; or is the markup of a manual page, or the next option.
    "reference": (
        r".*(?:\$\{|\{\{|\}\}|#\{|<%|%>|%\(|\$\().*",
        r"""\$[A-Za-z_][\w.:>"'\[\]-]*""",
        r"%[A-Za-z_%]\w*%?",
        r"%[\w.-]+%.*",
        r".*#[A-Za-z_]+#.*",
        r"<[^<>]*>?",
        r"\[[^\[\]]*\]?",
        r"\{[^{}]*\}?",
        r"@[\w.-]+@",
        r"__\w+__",
        r"(?:arn|vault|op|ssm|secret|env|file|urn|ref|config|keyring|sops|aws|gcp|azure|kms|classpath|projects|secrets)[:/+].*",
        r".*(?:^|\W)%[asdrvq@](?:\W.*|$)",
        r".*\{[A-Za-z_0-9.:!]*\}.*",
        r"(?:process\.env|os\.environ|env\.|System\.|ENV\[).*",
        r"\{?[A-Za-z_][\w.]*\}",
        r".*\*{3}.*",
        r".*\.\.\..*",
        r"!!?[A-Za-z_]+(?:[ /:].*)?",
        r"&#?\w+;.*",
        r".*&lt;.*",
        r"""\\[(\"'$n].*""",
        r"\$[A-Za-z_]\w* .*",
        r"\\(?:[*\[&]|f[BIRP(]).*",
        r".*\\f[BIRP]",
        r".*\\(?:&.*)?",
        r"--[a-z].*",
        r"-[a-z]+=.*",
    ),
    # Public by what it is: a digest with its name, a public key, an image, a certificate, a licence, an object identifier.
    "public": (
        r"(?i:(?:hmac-)?(?:sha|md)[0-9]{1,3}[:=-]).*",
        r"(?:ssh-|ecdsa-sha2|data:|image/|h1:).*",
        r"AAAA[BEC][3-9][A-Za-z0-9+/]{4}.*",
        r"(?:iVBORw0KGgo|/9j/4AA|R0lGOD|PHN2Zy|d09GR|AAEAAAA|UEsDB|H4sI|PD94bW|JVBERi|PCFET0).*",
        r"MI[IG][A-Z][A-Za-z0-9+/]{2}A[NO][BA].*",
        r"MF[kY]wE[wA]YHKoZIzj0.*",
        r"MCowBQYDK2V.*",
        r".*aws4_request.*",
        r"00240000048000.*",
        r"[ACNOUX][A-Z2-7]{55}",
        r"(?i:(?:scram|pbkdf2?|aes|rsa|hmac|ecdsa|sha)(?:[-_][a-z0-9]{2,6}){1,3})",
        r".*GPL[-_v]?[0-9].*",
        r"(?:MIT|ISC|BSD|Apache|MPL|EUPL|OFL|CC-BY|Zlib)(?:[-_ /+].*|[0-9.]*)",
        r"[0-2](?:\.[0-9]+){5,}",
        r"(?:[A-Z0-9]+[-_])*(?:SHA|AES|RSA|GCM|CBC|HMAC|OAEP|ECDSA|ECDHE|ECDH|EDDSA|CHACHA20|MD5|PBKDF2?|RS|HS|ES|PS|X)[0-9]{0,5}(?:[-_:+][A-Za-z0-9]+)*",
    ),
    # Encrypted or hashed.
    "sealed": (
        r"ENC[(\[].*",
        r"\$(?:2[abxy]?|[1569y]|apr1|argon2\w*|pbkdf2[\w-]*|scrypt)\$.*",
        r"\{(?:SHA|SSHA|CRYPT|bcrypt|cipher|MD5)\}.*",
        r"(?:pbkdf2|bcrypt|argon2|scrypt|sha1|sha256|md5)\w*\$.*",
        r"\{[A-Za-z0-9+/]{20,}={0,2}\}",
        r"vault:v[0-9]+:.*",
        r"Ag[A-Za-z0-9+/]{300,}={0,2}",
        r"U2FsdGVkX1.*",
        r"AQIC[A-Za-z0-9+/=]{60,}",
        r"gAAAAA[A-Za-z0-9_-]{60,}={0,2}",
    ),
    "uuid": (r"\{?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\}?",),
    # Nothing but letters.
    "letters": (r"[A-Za-z]+",),
    # A number, a date, a version, a size.
    "number": (
        r"[-+]?[0-9][0-9.,:_/+\-TZ ]*(?:[kKMGT]?i?[bB]|ms|s|m|h|d|px|em|rem|pt|%|[eE][-+]?[0-9]+|L|[uU][lL]{0,2}|f|n)?",
        r"0x[0-9A-Fa-f]{1,16}",
        r"v?[0-9]+(?:\.[0-9]+)+(?:[.+-][0-9A-Za-z.*+-]+)?",
        r"[0-9]+[A-Za-z]{1,2}",
        r"[~^<>=]{1,2}[0-9][\w.*-]*",
        r"#[0-9A-Fa-f]{3,8}",
    ),
    # A path, an address, a file, a host.
    "place": (
        r"[A-Za-z][A-Za-z0-9+.-]{0,20}:/.*",
        r"(?:\.{1,2}|~|[A-Za-z]:)[/\\].*",
        r"/(?:[a-z_.{:][\w.@%+~{}:*-]*/)*[a-z_.{:][\w.@%+~{}:*-]*(?:\?.*)?/?",
        rf"[\w./:@\\-]*\.(?:{_FILES})(?::[0-9]+)?(?:[/?].*)?",
        r"[\w.+-]+@[\w-]+(?:\.[A-Za-z][\w-]*)+",
        r"[a-z0-9-]+(?:\.[a-z0-9-]+)+:[0-9]+",
        r"localhost.*",
        r"[A-Za-z_.-]+(?:/[A-Za-z_.-]+[0-9]{0,3}){2,}/?",
        r"/(?:bin|dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var|Applications|Library|System|Users|Volumes)/.*",
        r"[a-z]+\\[a-z].*",
    ),
    "hex": (
        r"(?:0x|base64:|hex:)?[0-9a-f]{12,}",
        r"(?:0x)?[0-9A-F]{12,}",
        r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,}",
        r"(?:\\x[0-9A-Fa-f]{2}){6,}",
    ),
    # Letters with marks between them: a label, a name of several words.
    "words": (
        r"[A-Za-z\x80-\xff]+(?:['_.,:;/&+()\-!?*#@~|]+[A-Za-z\x80-\xff]+)*[.:?!*=,;&#_\-]{0,3}",
        r"[_#.@*$:~-]{1,3}[A-Za-z\x80-\xff]+(?:[-_.:/][A-Za-z]+)*[-_:=]?",
        r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    ),
    # A call, an expression, a pattern.
    "code": (
        r'[a-z]+:".*"',
        r".*(?:a-z|A-Z|0-9)(?:a-z|A-Z|0-9|_|\\).*",
        r"[^A-Za-z0-9\x80-\xff]*",
        r"[a-z_]+(?::[\w,.]+)?(?:\|[a-z_]+(?::[\w,.]+)?)+",
        r"[A-Za-z_$@&*!][\w.$:>-]*[(\[].*",
        r".*(?:=>|->|::|&&|\|\||\)\.|\(\)|\);|\}\)|</?[A-Za-z]|\+\+|===|!==|\?\.).*",
        r"\^.*",
        r".*\\[dwsDWSbBnrtx0].*",
        r".*\[\^?[A-Za-z0-9]-[A-Za-z0-9].*",
        r"[&*][A-Za-z_]\w*",
        r"[)\]},;(|].*",
        r"\+.*\+",
        r"[?&:=]\w+=.*",
        r".*[({\[,|&<]",
        r"[A-Za-z_.-]+=",
        r"[\w.-]*[})\]]+[;,)]*",
        r"[A-Za-z_][\w.-]*(?:=|==|!=|:=)[A-Za-z_.]+\(?",
        r"[A-Za-z_]+[0-9]{0,2}(?:\.[A-Za-z_]+[0-9]{0,2})+[;,)]*",
        r"\w+=\w+(?:[&;,]\w+=\w*)+",
        r"@[A-Za-z_][A-Za-z_./-]*",
        r"(?:true|false|null|nil|None|undefined)\b.*",
        r"[0-9]{1,3};.*",
    ),
    # Several words or what stands for them.
    "phrase": (r".* .*",),
    # Words with numbers at their ends.
    "numbered": (
        r"[#.@_]{0,2}[A-Za-z]{2,}[0-9]{0,4}(?:[-_.:/+]{1,2}(?:[A-Za-z]{2,}[0-9]{0,4}|v?[0-9]{1,4}|[A-Za-z]))*[.:!?]?",
        r"[A-Za-z]{3,}[0-9]{1,2}[A-Za-z]{3,}[0-9]{0,2}",
    ),
    # Letters and digits, mixed as programs draw them.
    "plain": (r"[A-Za-z0-9]+={0,2}",),
    # Letters, digits and signs.
    "other": (r"(?s:.*)",),
}
