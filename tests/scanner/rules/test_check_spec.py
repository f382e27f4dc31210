"""The short keys `live` and `dead` of a check are expanded to answers and recorded replies."""

from outcrop.scanner.rules.check_spec import load_checks

RULE = """
issuer = "Acme Mail"
[[rule]]
id = "acmemail_api_key"
word = "acme mail"
value = "hex 32"

[rule.check]
url = "https://api.acmemail.com/me"
headers = { Authorization = "Bearer {secret}" }
live = { json = { id = "*" }, reply = '{"id": 7}' }
dead = { confidence = "low", reply = 'no such key' }
"""


def test_short_answers_become_complete_answers_with_their_replies(tmp_path):
    file = tmp_path / "acme.toml"
    file.write_text(RULE)
    (check,) = load_checks("acmemail_api_key", f"{file}:5")
    assert [(answer.status, answer.json_, answer.result, answer.confidence) for answer in check.answer] == [
        ([200], {"id": "*"}, "valid", "high"),
        ([401], {}, "invalid", "low"),
    ]
    assert [
        (reply.status, reply.headers["Content-Type"], reply.body, reply.result, reply.confidence)
        for reply in check.reply
    ] == [
        (200, "application/json", '{"id": 7}', "valid", "high"),
        (401, "text/plain", "no such key", "invalid", "low"),
    ]
