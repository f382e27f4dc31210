"""Test by which paths, names and values a credential belongs to tests, examples, documents or libraries."""

import time

import pytest

from outcrop.domain.finding import FindingContext
from outcrop.scanner.finding_context import decide_context, find_hint

PATHS = {
    "test": """
        src/test/java/com/acme/Login.java
        app/src/androidTest/kotlin/X.kt
        src/it/resources/application.yml
        lib/__tests__/login.js
        lib/__mocks__/aws.ts
        pkg/auth/auth_test.go
        spec/models/user_spec.rb
        web/login.spec.ts
        web/login.test.tsx
        web/login.cy.test.js
        test_login.py
        api/conftest.py
        fixtures/users.yml
        test/fixtures/vcr_cassettes/login.yml
        cassettes/login.yaml
        internal/testdata/key.pem
        e2e/login.ts
        cypress/support/commands.js
        mocks/handlers.ts
        Acme.Api.Tests/LoginTests.cs
        MyAppTests/LoginTests.swift
        src/UserServiceIT.java
        src/TestLogin.java
        src/UserSpec.scala
        src/FakeMailer.php
        t/login.t
        crates/core/tests/login.rs
        docker-compose.test.yml
        docker-compose-e2e.yml
        config/environments/test.rb
        appsettings.Testing.json
        .env.test
        phpunit.xml.dist
        jest.config.js
        features/login.feature
        load/login.jmx
        tests/README/data.json
        archive.zip!pkg/tests/key.py
        integration-tests/run.sh
        testing/helpers.go
        """,
    "example": """
        .env.example
        .env.sample
        .env.dist
        .env.template
        config/.env.local.example
        env.sample
        sample.env
        example.env
        config/settings.example.py
        wp-config-sample.php
        app/config/parameters.yml.dist
        config.dist.yml
        config.json.template
        examples/login.py
        samples/Login/Program.cs
        demo/app.js
        quickstart/main.go
        tutorial/step1.py
        packages/acme-example-app/index.ts
        playground/index.html
        """,
    "documentation": """
        README.md
        README
        Readme.txt
        docs/index.html
        doc/setup.py
        tests/README.md
        CHANGELOG.md
        INSTALL
        guide.rst
        manual/setup.adoc
        content/posts/intro.mdx
        api/openapi.yaml
        swagger.json
        docs/source/conf.py
        """,
    "vendored": """
        vendor/github.com/acme/lib/key.go
        vendor/acme/tests/LoginTest.php
        third_party/lib/x.c
        third-party/x.py
        node_modules/x/README.md
        web/bower_components/x/y.js
        Pods/Acme/Key.m
        Carthage/Checkouts/X/y.swift
        .venv/lib/python3.11/site-packages/x.py
        usr/lib/python3/dist-packages/x.py
        static/app.min.js
        wwwroot/lib/x/y.js
        public/js/jquery-3.6.0.js
        assets/plugins/x/y.js
        js/moment.js
        deps/x/y.erl
        Godeps/_workspace/src/x.go
        """,
    "production": """
        src/main/java/com/acme/Login.java
        app/latest.py
        contest/scores.py
        config/production.yml
        .env
        .env.production
        docker-compose.yml
        k8s/pods/login.yaml
        k8s/service-spec.yaml
        deploy/template.yaml
        app/specification.py
        packaging/outcrop.spec
        src/install.sh
        install
        src/axios.js
        resources/js/bootstrap.js
        dist/app.js
        src/attest.go
        greatest/hits.sql
        src/components/Security.html
        app/ab-testing/config.py
        src/models/documents/user.ts
        recipes/default.rb
        .git/COMMIT_EDITMSG
        requests.rest
        """,
}
CASES = [(context, path) for context, paths in PATHS.items() for path in paths.split()]


@pytest.mark.parametrize(("context", "path"), CASES)
def test_the_path_decides(context: str, path: str) -> None:
    assert decide_context(path) == context


def test_a_password_in_the_configuration_of_ci_belongs_to_its_tests_and_a_token_does_not() -> None:
    for path in (".github/workflows/ci.yml", ".gitlab-ci.yml", "Jenkinsfile", "x/.circleci/config.yml"):
        assert decide_context(path, is_password=True) == "test"
        assert decide_context(path) == "production"
    assert decide_context("ci.yml", is_password=True) == "production"


def test_a_site_serves_its_own_programs_minified() -> None:
    assert decide_context("/static/app.min.js", is_served=True) == "production"
    assert decide_context("/static/app.min.js") == "vendored"


@pytest.mark.parametrize(
    ("before", "value", "hint"),
    [
        ('TEST_API_KEY = "', "a1B2c3D4e5", "test"),
        ('const testToken: string = "', "a1B2c3D4e5", "test"),
        ('"mock_secret": "', "a1B2c3D4e5", "test"),
        ("export SANDBOX_KEY=", "a1B2c3D4e5", "test"),
        ("self.fakePassword = '", "a1B2c3D4e5", "test"),
        ("examplePassword := `", "a1B2c3D4e5", "example"),
        ("LATEST_TOKEN=", "a1B2c3D4e5", None),
        ("contestSecret=", "a1B2c3D4e5", None),
        ("api_key = ", "sk_test_" + "a1B2" * 6, "test"),
        ("api_key = ", "AKIA" + "ABCDEFGHI" + "EXAMPLE", "example"),
        ("password: ", "test123", "test"),
        ("password: ", "testament", None),
        ("password: ", "Greatest-test1", None),
        ("", "a1B2c3D4e5", None),
        ("a test of the password = ", "a1B2c3D4e5", None),
    ],
)
def test_the_name_and_the_value_give_a_hint(before: str, value: str, hint: str | None) -> None:
    assert find_hint(before.encode(), value, placeholder=False) == hint


def test_a_placeholder_is_an_example_and_the_path_wins_over_the_hint() -> None:
    assert find_hint(b"", "changeme", placeholder=True) is FindingContext.EXAMPLE
    assert decide_context("app.py", hint=FindingContext.EXAMPLE) == "example"
    assert decide_context("tests/app.py", hint=FindingContext.EXAMPLE) == "test"
    assert decide_context(None, hint=FindingContext.TEST) == "test"
    assert decide_context(None) == "production"


@pytest.mark.parametrize("part", [".spec", "a-", "test", "1.", "../", "!", "\\", "Aa", ".woodpecker"])
def test_a_hostile_path_costs_little(part: str) -> None:
    start = time.process_time()
    decide_context(part * 100_000, is_password=True)
    find_hint(part.encode() * 100_000, part * 100_000, placeholder=False)
    assert time.process_time() - start < 5
