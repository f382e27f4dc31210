"""Decide whether a credential is one of production, tests, examples, documentation or vendored code.

`decide_context` checks these, in this order:

1. The path: vendored code, then documents by their kind of file, then tests, examples, folders of documents.
2. In the configuration of a CI system: a password there is that of a service container of the tests.
3. The name and the value (`find_hint`): `TEST_API_KEY=…`, `…_test_…`, a stand-in such as `changeme`.

Everything else is production. The context never decides whether a value is reported.
"""

from itertools import pairwise

from outcrop.domain.finding import FindingContext
from outcrop.lazy_regex import regex

_PRODUCTION, _TEST, _EXAMPLE = FindingContext.PRODUCTION, FindingContext.TEST, FindingContext.EXAMPLE
_DOCUMENTATION, _VENDORED = FindingContext.DOCUMENTATION, FindingContext.VENDORED

_MAX_FILE_NAME = 255  # characters, from its end
_MAX_PATH = 1_000  # characters, from its end
_MAX_NAME_DISTANCE = 200  # bytes from the value to the beginning of the text in which its name is searched
_MAX_HINT_VALUE = 64  # characters; `test` inside a longer value is by chance

# Words of a name: `MyAppTests`, `my-app_tests`, `e2e.spec`. A digit stays with the letters before it.
_BETWEEN_WORDS = regex(r"[-_. ]")
_WORD = regex(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*[a-z]*|[0-9]+[a-z]*")


def _read_words(text: str) -> frozenset[str]:
    """Return the words of a list that is written as text."""
    return frozenset(text.split())


# --- folders: names in lower case and without `-`, `_`, `.` and spaces
_VENDORED_FOLDERS = _read_words("""
    vendor vendors vendored vendorlib vendorlibs thirdparty thirdpartylibs 3rdparty 3rdpartylibs extern
    externals nodemodules bowercomponents jspmpackages webcomponents sitepackages distpackages godeps venv
    virtualenv gopath pypackages webjars wpincludes submodules deps
    """)
_VENDORED_EXACT = frozenset(
    ["Pods", "Carthage", ".yarn", ".pnpm", ".pnpm-store", ".venv", ".tox", ".nox", ".eggs"]
)
_STATIC_FOLDERS = _read_words("wwwroot static public assets")
_LIBRARY_FOLDERS = _read_words("lib libs plugins bower")
_TEST_FOLDERS = _read_words("""
    itest itests inttest inttests testfixtures testresources testassets testcase testcases testsuite
    testsuites testutil testutils testhelper testhelpers testsupport testkit testlib testbed testfiles testapp
    testproject testserver testcontainers integrationtest integrationtests functionaltest functionaltests
    acceptancetest acceptancetests systemtest systemtests regressiontest regressiontests smoketest smoketests
    loadtest loadtests perftest perftests apitest apitests uitest uitests e2etest e2etests androidtest jvmtest
    commontest iostest jstest nativetest spec specs endtoend cassette cassettes vcr vcrcassettes mockdata
    mockserver stub stubs fake fakes wiremock cypress playwright selenium karma jasmine jmeter gatling locust
    newman fuzz fuzzing
    """)
_TEST_WORDS = _read_words("test tests testing testdata unittest unittests e2e fixture fixtures mock mocks")
_EXAMPLE_FOLDERS = _read_words("""
    quickstarts gettingstarted playground playgrounds boilerplate showcase walkthrough walkthroughs workshop
    workshops helloworld
    """)
_EXAMPLE_WORDS = _read_words("example examples sample samples demo demos tutorial tutorials quickstart")
_DOCUMENT_FOLDERS = _read_words("""
    doc docs documentation docsrc docsite userdocs userguide developerdocs devdocs apidoc apidocs javadoc
    javadocs godoc doxygen sphinx man manpages wiki
    """)

# --- files, in lower case
_DOCUMENT_EXTENSIONS = _read_words("""
    md mdx mdown mkd markdown mdwn rmd qmd rst adoc asciidoc textile rdoc pod creole wiki mediawiki tex latex
    texi texinfo docx doc odt rtf pdf epub pptx odp man
    """)
_DOCUMENT_NAME = regex(
    r"(?:readme(?:[._-][\w.-]*)?|changelog(?:\.txt)?|licen[cs]e(?:\.txt)?|copying(?:\.txt)?"
    r"|(?:changes|history|contributing|contributors|authors|install|installation|faq|news|todo"
    r"|release[-_ ]?notes|upgrading|upgrade|getting[-_ ]?started|tutorial|notice|security|hacking|roadmap"
    r"|troubleshooting)\.te?xt)"
)
_DOCUMENT_WORD = regex(r"[A-Z]{3,}(?:[_-][A-Z]+)*")  # `INSTALL`; a program is in lower case
_API_DESCRIPTION = regex(r"(?:[\w.-]*[._-])?(?:swagger|openapi)(?:[._-][\w.-]*)?\.(?:json|ya?ml)")
_MINIFIED = regex(r"[.-](?:min|pack|slim|umd)\.(?:js|mjs|cjs|css)(?:\.map)?$")
_LIBRARY = regex(
    r"(?:(?:jquery|modernizr|tinymce|ckeditor|mathjax|highcharts|highstock|zepto|mootools|scriptaculous"
    r"|html5shiv|swfobject|knockout|raphael|jsencrypt|sjcl|datatables|select2|swagger-ui)[\w.-]*"
    r"|(?:angular|lodash|underscore|backbone|moment|d3|codemirror|echarts|handlebars|mustache|crypto-js|sockjs"
    r"|ember|plotly|leaflet|katex)(?:[.-](?:v?[0-9]|core|debug|full|bundle)[\w.-]*)?"
    r"|[a-z][a-z0-9]*(?:[.-][a-z]+)*[.-]v?[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:[.-][\w.-]*)?)\.(?:js|mjs|cjs|css)(?:\.map)?"
)
_TEST_FILE = regex(
    r"(?:conftest\.py|pytest\.ini|tox\.ini|noxfile\.py|\.rspec|phpunit(?:\.[\w.-]+)?\.xml(?:\.dist)?"
    r"|testng[\w.-]*\.xml|karma\.conf[\w.]*|(?:jest|vitest|playwright|wdio|protractor|nightwatch)[.-][\w.-]+"
    r"|cypress(?:\.[\w.-]+)?\.(?:json|[jt]s)|codeception\.ya?ml|behat\.ya?ml|cucumber\.[\w.]+"
    r"|[\w.-]+\.(?:feature|snap|bats|jmx|robot|cassette|approved|golden))"
)
_SPEC_FILE = regex(
    r"[\w.-]*[._-]specs?(?:\.[\w-]+)*"
    r"\.(?:[cm]?[jt]sx?|rb|py|php|go|java|kts?|scala|groovy|coffee|lua|exs?|cr|swift|dart|hs|vue|sh)"
)
_TEST_CLASS = regex(
    r"\w*[a-z0-9](?:Tests?|Testing|TestCase|TestSuite|IT|ITCase|Mock|Stub|Fixture)\.\w+"
    r"|\w+Specs?\.(?:groovy|scala|kt|hs|swift|coffee)"
    r"|(?:Mock|Fake|Stub)[A-Z]\w*\.\w+"
)
_ENVIRONMENT_SAMPLE = regex(
    r"(?:[\w.-]*\.)?env(?:[._-][\w-]+)*[._-](?:template|tmpl|tpl|dist|skel|defaults?)"
    r"|(?:template|dist|skel|defaults?)[._-]?\.?env|[\w-]+\.(?:template|dist)\.env"
)
_BROWSER_EXTENSIONS = (".js", ".mjs", ".cjs", ".css", ".map")

_CI_FILE = regex(
    r"(?:^|/)(?:\.github/(?:workflows|actions)/.+\.ya?ml|\.gitlab-ci[\w.-]*\.ya?ml|\.gitlab/ci/.+\.ya?ml"
    r"|\.travis\.ya?ml|\.circleci/.+\.ya?ml|azure-pipelines[\w.-]*\.ya?ml|\.azure-pipelines/.+\.ya?ml"
    r"|bitbucket-pipelines\.ya?ml|jenkinsfile[\w.-]*|\.drone\.(?:ya?ml|star|jsonnet)|\.woodpecker[\w./-]*\.ya?ml"
    r"|\.?appveyor\.ya?ml|\.buildkite/.+|\.semaphore/.+\.ya?ml|wercker\.ya?ml|\.cirrus\.ya?ml|shippable\.ya?ml"
    r"|codeship[\w.-]*\.ya?ml|\.gitea/workflows/.+\.ya?ml|\.forgejo/workflows/.+\.ya?ml|\.ci/.+|buildspec\.ya?ml"
    r"|\.evergreen[\w./-]*\.ya?ml|zuul\.d/.+|\.zuul\.ya?ml|docker-compose[._-]ci\.ya?ml)$"
)

# --- names and values
_NAME = regex(
    r"([A-Za-z_$@][\w.$-]*)[\"'`\])]*\s*(?::\s*[A-Za-z][\w<>\[\]|?.]{0,30}\s*(?==))?"
    r"(?:=>|:=|[:=,(>]|->)\s*[^\w]{0,8}$"
)
_HINT_WORDS = {
    _TEST: _read_words("test tests testing tester mock mocks mocked fake stub dummy sandbox unittest e2e"),
    _EXAMPLE: _read_words("example examples sample samples demo placeholder"),
}
_TEST_VALUE = regex(
    r"(?i)(?:^|[_-])(?:test|sandbox|dummy|fake|mock)(?:[_-]|$)"
    r"|^test(?:ing|er)?(?:[\W_\d]|pass|secret|user|key|token)"
)
_EXAMPLE_VALUE = regex(r"(?i)(?:^|[\W_])(?:example|sample|placeholder)(?:[\W_]|$)|EXAMPLE(?:KEY)?$")


def decide_context(
    path: str | None,
    *,
    hint: FindingContext | None = None,
    is_password: bool = False,
    is_served: bool = False,
) -> FindingContext:
    """Return the context of a credential in the file at `path`; None is a path that is not known.

    `hint` is what `find_hint` says. `is_password` says that the value has no form of an issuer. A site
    serves (`is_served`) its own programs minified.
    """
    if path:
        path = path[-_MAX_PATH:].replace("!", "/").replace("\\", "/")
        by_path = _decide_by_path(path, is_served=is_served)
        if by_path is not None:
            return by_path
        if is_password and _CI_FILE.search(path.lower()):
            return _TEST
    return hint or _PRODUCTION


def _decide_by_path(path: str, *, is_served: bool) -> FindingContext | None:
    """Return the context that the path alone decides; None if it decides nothing."""
    *folders, name = path.split("/")
    name = name[-_MAX_FILE_NAME:]
    plain = [_plain(folder) for folder in folders]
    if _is_vendored(folders, plain, name.lower(), is_served=is_served):
        return _VENDORED
    if _is_document(name):
        return _DOCUMENTATION
    if _is_test_file(name) or _has_test_folder(folders, plain):
        return _TEST
    if _is_example_file(name) or any(map(_is_example_folder, folders, plain)):
        return _EXAMPLE
    if not _DOCUMENT_FOLDERS.isdisjoint(plain) or _API_DESCRIPTION.fullmatch(name.lower()):
        return _DOCUMENTATION
    return None


def _plain(folder: str) -> str:
    """Return the name of a folder in lower case, without the characters between its words."""
    return _BETWEEN_WORDS.sub("", folder).lower()


def _words(name: str) -> set[str]:
    """Return the words of a name in lower case, without numbers at their ends."""
    return {word.lower().rstrip("0123456789") for word in _WORD.findall(name)}


def _is_vendored(folders: list[str], plain: list[str], name: str, *, is_served: bool) -> bool:
    """Whether the file is a copy of somebody else's code: by its folders, or as a known library.

    `plain` are the folders as `_plain` returns them, `name` is the name of the file in lower case.
    """
    if not _VENDORED_FOLDERS.isdisjoint(plain) or not _VENDORED_EXACT.isdisjoint(folders):
        return True
    if folders and folders[0] == "external":
        return True
    if any(outer in _STATIC_FOLDERS and inner in _LIBRARY_FOLDERS for outer, inner in pairwise(plain)):
        return True
    return not is_served and (_LIBRARY.fullmatch(name) or _MINIFIED.search(name)) is not None


def _is_document(name: str) -> bool:
    """Whether a file is a document by its extension or its name, such as `README` and `INSTALL.txt`."""
    lower = name.lower()
    stem, _, extension = lower.rpartition(".")
    if stem and extension in _DOCUMENT_EXTENSIONS:
        return True
    return (
        _DOCUMENT_NAME.fullmatch(lower) is not None
        or (_DOCUMENT_WORD.fullmatch(name) and _DOCUMENT_NAME.fullmatch(f"{lower}.txt")) is not None
    )


def _has_test_folder(folders: list[str], plain: list[str]) -> bool:
    """Whether one of the folders is for tests; `plain` are their names as `_plain` returns them."""
    if not _TEST_FOLDERS.isdisjoint(plain) or plain[:1] == ["t"] or "src/it" in "/".join(plain[:8]):
        return True
    return any(
        not _TEST_WORDS.isdisjoint(words) and not words >= {"ab", "testing"} for words in map(_words, folders)
    )


def _is_example_folder(folder: str, plain: str) -> bool:
    """Whether files in the folder are examples; `plain` is its name as `_plain` returns it."""
    return plain in _EXAMPLE_FOLDERS or not _EXAMPLE_WORDS.isdisjoint(_words(folder))


def _is_test_file(name: str) -> bool:
    """Whether the file is one of tests by its name, such as `test_x.py`, `x_test.go` and `XTest.java`."""
    lower = name.lower()
    if _TEST_FILE.fullmatch(lower) or _SPEC_FILE.fullmatch(lower) or _TEST_CLASS.fullmatch(name):
        return True
    return not _TEST_WORDS.isdisjoint(_words(name))


def _is_example_file(name: str) -> bool:
    """Whether the file is an example by its name, such as `.env.example` and `config.dist.yml`."""
    if not _EXAMPLE_WORDS.isdisjoint(_words(name)):
        return True
    lower = name.lower()
    if lower.endswith(_BROWSER_EXTENSIONS):
        return False
    parts = lower.split(".")[1:]  # after the first dot
    return "dist" in parts or parts[-1:] == ["template"] or _ENVIRONMENT_SAMPLE.fullmatch(lower) is not None


def find_hint(before: bytes, value: str, *, placeholder: bool) -> FindingContext | None:
    """Return what the name before a value, and the value itself, say about its context; None for nothing.

    `before` is the text before the value in its line. `placeholder` says that the value is a stand-in.
    """
    if placeholder:
        return _EXAMPLE
    if len(value) <= _MAX_HINT_VALUE:
        if _TEST_VALUE.search(value):
            return _TEST
        if _EXAMPLE_VALUE.search(value):
            return _EXAMPLE
    text = before[-_MAX_NAME_DISTANCE:].decode("utf-8", "replace")
    if (named := _NAME.search(text)) is not None:
        words = _words(named[1])
        for context, hints in _HINT_WORDS.items():
            if not hints.isdisjoint(words):
                return context
    return None
