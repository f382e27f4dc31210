"""The example's repositories, with credentials at the tip, in the history, on a branch and in a gist."""

from dataclasses import dataclass

OWNER = "acme"
GIST = "5f1c0ffee0ddba11ca5c"

_JO, _SAM, _KIM = (
    "Jo Meyer <jo@acme.example>",
    "Sam Okafor <sam@acme.example>",
    "Kim Laurent <kim@acme.example>",
)


@dataclass(frozen=True, slots=True)
class DemoCommit:
    """One commit; `changes` maps paths to templates, None removes the file."""

    days_ago: float
    author: str
    message: str
    changes: dict[str, str | None]
    branch: str = "main"
    start: bool = False  # the commit starts a branch at the tip of main


@dataclass(frozen=True, slots=True)
class DemoRepository:
    """A repository: the commits before the first scans, and those before the second scans (`later`).

    `pushed` is pushed at the end, and the push hook is called.
    """

    name: str
    commits: tuple[DemoCommit, ...]
    later: tuple[DemoCommit, ...] = ()
    visibility: str = "public"
    rewritten: bool = False  # `later` replaces the whole history
    pushed: tuple[DemoCommit, ...] = ()


_STRIPE = "«stripe_secret_key alive shop|sk_live_{{base62 24}}»"
_SENDGRID = "«sendgrid_api_key alive shop|SG.{{base64url 22}}.{{base64url 42}}a»"
_MAPS = "«gcp_api_key alive maps|AIza{{base64url 35}}»"
_AWS_ID = "«aws_access_key alive deploy|AKIA{{base32 16}}»"
_AWS = "«aws_access_key alive deploy|{{base64 40}}»"
_SLACK = "«slack_token alive bot|xoxb-{{digits 12}}-{{digits 13}}-{{base62 24}}»"
_NPM = "«npm_token dead ci|npm_{{base62 30}}{{crc32_base62}}»"
_OPENAI = "«openai_api_key alive assistant|sk-proj-{{base64url 73}}T3BlbkFJ{{base64url 73}}A»"

_SHOP_SETTINGS = f"""\"\"\"Settings of the shop. Made up for the Outcrop demo.\"\"\"

import os

DEBUG = False
ALLOWED_HOSTS = ["www.acme.example"]

# TODO(jo): move to the vault before the launch
STRIPE_SECRET_KEY = "{_STRIPE}"
STRIPE_WEBHOOK_TOLERANCE = 300
SENDGRID_API_KEY = os.environ.get("SENDGRID_API_KEY", "{_SENDGRID}")
DATABASE_URL = "postgres://shop:«postgres_uri unasked shop|{{{{base62 18}}}}»@db.acme.example:5432/shop"
"""

SHOP = DemoRepository(
    "shop",
    (
        DemoCommit(
            210,
            _JO,
            "Begin",
            {
                "README.md": "# shop\n\nThe web shop of Acme, a company that does not exist.\n",
                "shop/__init__.py": "",
            },
        ),
        DemoCommit(
            205,
            _JO,
            "Settings and payments",
            {
                "shop/settings.py": _SHOP_SETTINGS,
                "shop/payments.py": "import stripe\n\nfrom shop import settings\n\nstripe.api_key = settings.STRIPE_SECRET_KEY\n",
            },
        ),
        DemoCommit(
            180,
            _SAM,
            "Deploy from the pipeline",
            {
                "deploy/pipeline.yml": "stages: [test, deploy]\n\ndeploy:\n  variables:\n"
                f'    AWS_ACCESS_KEY_ID: "{_AWS_ID}"\n    AWS_SECRET_ACCESS_KEY: "{_AWS}"\n'
                "  script:\n    - aws s3 sync dist s3://acme-shop\n",
                ".npmrc": f"//npm.acme.example/:_authToken={_NPM}\n",
            },
        ),
        DemoCommit(
            160,
            _KIM,
            "Tell the channel about orders",
            {
                "shop/notify.py": "from slack_sdk import WebClient\n\n"
                f'client = WebClient(token="{_SLACK}")\n\n\n'
                'def order_placed(order):\n    client.chat_postMessage(channel="#orders", text=str(order))\n',
                "scripts/notify.sh": "#!/bin/sh\ncurl -sS -X POST -H 'Content-Type: application/json' -d @- "
                "«slack_webhook alive orders|https://hooks.slack.com/services/T{{BASE36 8}}/B{{BASE36 10}}/{{base62 24}}»\n",
            },
        ),
        DemoCommit(
            140,
            _SAM,
            "Old tooling",
            {
                "tools/release.py": "# made up for the Outcrop demo\n"
                'GITHUB_TOKEN = "«github_pat_classic dead release|ghp_{{base62 30}}{{crc32_base62}}»"\n',
                "tools/mirror.env": "GITLAB_TOKEN=«gitlab_pat dead mirror|glpat-{{base64url 20}}»\nMIRROR=https://gitlab.com/acme/shop\n",
                ".env": "MAILGUN_API_KEY=«mailgun_api_key fault mail|{{hex 32}}-{{hex 8}}-{{hex 8}}»\n"
                "PAGERDUTY_TOKEN=«pagerduty_key down oncall|u+{{base62 18}}»\n"
                "SECRET_SALT=development\n",
            },
        ),
        DemoCommit(139, _SAM, "Remove .env", {".env": None}),
        DemoCommit(
            120,
            _JO,
            "A helper that answers questions",
            {
                "assistant/app.py": f'from openai import OpenAI\n\nclient = OpenAI(api_key="{_OPENAI}")\n',
                "assistant/claude.py": "import anthropic\n\n"
                'client = anthropic.Anthropic(api_key="«anthropic_api_key narrow assistant|sk-ant-api03-{{base62 93}}AA»")\n',
            },
        ),
        DemoCommit(
            90,
            _KIM,
            "Refunds",
            {"shop/refunds.py": "def refund(order):\n    return order\n"},
            branch="feature/refunds",
            start=True,
        ),
        DemoCommit(
            88,
            _KIM,
            "Try refunds against the test account",
            {
                "shop/refunds.py": "import stripe\n\n"
                'stripe.api_key = "«stripe_secret_key alive refunds|sk_test_{{base62 24}}»"\n\n\n'
                "def refund(order):\n    return stripe.Refund.create(charge=order.charge)\n"
            },
            branch="feature/refunds",
        ),
        DemoCommit(
            60,
            _SAM,
            "Watch the shop",
            {
                "monitoring/agent.yaml": "# made up for the Outcrop demo\ndatadog:\n  site: datadoghq.com\n"
                "  DD_API_KEY: «datadog_api_key dead agent|{{hex 32}}»\n",
                "monitoring/sentry.properties": "defaults.org=acme\nauth.token=«sentry_auth_token alive releases|sntryu_{{hex 64}}»\n",
            },
        ),
        DemoCommit(
            41,
            _JO,
            "Tests",
            {
                "tests/test_payments.py": "# a key of nobody, for the recorded answers\n"
                'KEY = "«stripe_secret_key dead tests|sk_test_{{base62 24}}»"\n',
                "tests/fixtures/login.json": '{"user": "test", "password": "«generic_password unasked fixture|Summer-{{base62 10}}»"}\n',
            },
        ),
        DemoCommit(
            20,
            _KIM,
            "Search",
            {
                "shop/search.py": '# made up for the Outcrop demo\nALGOLIA_ADMIN_KEY = "«algolia_key unasked search|{{hex 32}}»"\n'
            },
        ),
    ),
    later=(
        DemoCommit(
            0.02,
            _JO,
            "Take the keys out of the settings",
            {
                "shop/settings.py": '"""Settings of the shop. Made up for the Outcrop demo."""\n\nimport os\n\nDEBUG = False\n'
                'ALLOWED_HOSTS = ["www.acme.example"]\n\nSTRIPE_SECRET_KEY = os.environ["STRIPE_SECRET_KEY"]\n'
                'SENDGRID_API_KEY = os.environ["SENDGRID_API_KEY"]\nDATABASE_URL = os.environ["DATABASE_URL"]\n'
            },
        ),
        DemoCommit(
            0.01,
            _KIM,
            "Hot fix for the export",
            {
                "scripts/export.py": "# runs on my machine\n"
                'GITHUB_TOKEN = "«github_pat_fine alive export|github_pat_{{base62 22}}_{{base62 59}}»"\n'
            },
        ),
    ),
)

INFRASTRUCTURE = DemoRepository(
    "infrastructure",
    (
        DemoCommit(
            300, _SAM, "Servers as code", {"README.md": "# infrastructure\n\nMade up for the Outcrop demo.\n"}
        ),
        DemoCommit(
            295,
            _SAM,
            "Droplets and names",
            {
                "terraform/main.tf": 'provider "digitalocean" {\n  token = "«digitalocean_token alive infra|dop_v1_{{hex 64}}»"\n}\n\n'
                'provider "cloudflare" {\n  api_token = "«cloudflare_api_token alive dns|cfut_{{base62 40}}{{crc32_hex}}»"\n}\n',
                "ansible/group_vars/all.yml": "# made up for the Outcrop demo\n"
                "redis_url: redis://:«redis_uri unasked cache|{{base62 20}}»@cache.acme.example:6379/0\n"
                "mysql_url: mysql://wiki:«mysql_uri unasked wiki|{{base62 16}}»@db.acme.example/wiki\n"
                "amqp_url: amqp://orders:«amqp_uri unasked orders|{{base62 16}}»@mq.acme.example:5672/orders\n",
            },
        ),
        DemoCommit(
            240,
            _KIM,
            "Back up at night",
            {
                "backup/backup.sh": "#!/bin/sh\n# made up for the Outcrop demo\n"
                f"export AWS_ACCESS_KEY_ID={_AWS_ID}\nexport AWS_SECRET_ACCESS_KEY={_AWS}\n"
                "aws s3 cp /var/backups s3://acme-backup --recursive\n",
                "heroku/worker.env": "HEROKU_API_KEY=«heroku_api_key dead worker|HRKU-AA{{base62 58}}»\n",
                "docker/login.sh": "docker login -u acmebuild -p «dockerhub_pat alive images|dckr_pat_{{base64url 27}}»\n",
            },
        ),
        DemoCommit(
            150,
            _SAM,
            "CI",
            {
                "ci/config.yml": "# made up for the Outcrop demo\nenv:\n"
                "  CIRCLE_TOKEN: «circleci_token dead ci|CCIPAT_{{base62 22}}_{{hex 40}}»\n"
                "  VERCEL_TOKEN: «vercel_token alive preview|vcp_{{base62 50}}{{crc32_base62}}»\n"
                "  HF_TOKEN: «huggingface_token narrow models|hf_{{letters 34}}»\n",
                "ci/pypirc": "[pypi]\nusername = __token__\npassword = «pypi_token dead upload|pypi-AgEIcHlwaS5vcmc{{base64url 157}}»\n",
            },
        ),
    ),
    visibility="private",
)

MOBILE = DemoRepository(
    "mobile-app",
    (
        DemoCommit(130, _KIM, "App", {"README.md": "# mobile-app\n\nMade up for the Outcrop demo.\n"}),
        DemoCommit(
            129,
            _KIM,
            "Maps and payments",
            {
                "android/app/src/main/res/values/keys.xml": "<resources>\n"
                f'  <string name="google_maps_key">{_MAPS}</string>\n</resources>\n',
                "ios/Config.xcconfig": f"MAPS_KEY = {_MAPS}\n"
                "MAPBOX_TOKEN = «mapbox_token dead maps|sk.eyJ1Ijoi{{base62 60}}.{{base62 22}}»\n",
                "fastlane/.env.default": f"SLACK_URL={_SLACK}\n",
            },
        ),
        DemoCommit(
            100,
            _JO,
            "Chat bot",
            {
                "bot/main.py": "# made up for the Outcrop demo\n"
                'TELEGRAM_BOT_TOKEN = "«telegram_bot_token alive support|{{digits 10}}:AA{{base64url 33}}»"\n'
                'LINEAR_API_KEY = "«linear_api_key dead tickets|lin_api_{{base62 40}}»"\n'
            },
        ),
    ),
    pushed=(
        DemoCommit(
            0,
            _KIM,
            "Releases",
            {
                "fastlane/Fastfile": "# made up for the Outcrop demo\n"
                'ENV["GITHUB_TOKEN"] = "«github_pat_classic alive releases|ghp_{{base62 30}}{{crc32_base62}}»"\n'
            },
        ),
    ),
)

NOTES = DemoRepository(
    GIST,
    (
        DemoCommit(
            30,
            _JO,
            "notes",
            {
                "setup-notes.md": "# Setting up the laptop (made up for the Outcrop demo)\n\n"
                "    export NOTION_TOKEN=«notion_token alive notes|ntn_{{digits 11}}{{base62 35}}»\n"
                "    export POSTMAN_API_KEY=«postman_api_key dead notes|PMAK-{{hex 24}}-{{hex 34}}»\n",
                "netrc": f"machine api.stripe.com login acme password {_STRIPE}\n",
            },
        ),
    ),
    later=(
        DemoCommit(
            0.01,
            _JO,
            "notes",
            {
                "setup-notes.md": "# Setting up the laptop (made up for the Outcrop demo)\n\n"
                "    export NOTION_TOKEN=«notion_token alive notes|ntn_{{digits 11}}{{base62 35}}»\n"
            },
        ),
    ),
    rewritten=True,
)

REPOSITORIES = (SHOP, INFRASTRUCTURE, MOBILE)


def templates() -> list[str]:
    """Return the template of every file in any commit."""
    repositories = (*REPOSITORIES, NOTES)
    commits = [
        commit
        for repository in repositories
        for commit in (*repository.commits, *repository.later, *repository.pushed)
    ]
    return [text for commit in commits for text in commit.changes.values() if text]
