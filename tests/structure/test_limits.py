"""Every limit of what outsiders may cost is in `outcrop.limits`: no module that reads foreign data has its own."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "outcrop"
# The packages that read what others have written. `store` and `cli` read what these have let through, or what
# the operator has written; the numbers of `scanner` outside of `text` say what looks like a credential.
FOREIGN = ("api", "domain", "net", "notes.py", "portal", "scanner/text", "services", "sources", "validation")
LIMIT = re.compile(r"(^|_)(MAX|TIMEOUT|DEADLINE|LENGTH|SECONDS|BYTES)(_|$)")
# How much is read or written at once, which does not end anything.
STEP = re.compile(r"(^|_)(BATCH|BUFFER|CHUNK|COPIED|HEAD|HEADER|MIN|PIECE|POLL|READ|STEP)(_|$)")
NO_LIMITS = {
    "what a format or a platform has": """
        domain.totp.SECRET_BYTES domain.totp.RECOVERY_BYTES domain.totp._MAX_DRIFT
        portal.cookies._MAX_LIFETIME scanner.text.archives._TAR_BLOCK_BYTES
        scanner.text.encodings._BYTES_BEFORE_ESCAPE scanner.text.encodings._BYTES_AFTER_ESCAPE
        scanner.text.encodings._MAX_BYTES_AFTER_WORD scanner.text.linux_packages._RPM_LEAD_BYTES
        scanner.text.linux_packages._CPIO_FIELD_BYTES scanner.text.magic.ZIP_TAIL_BYTES
        services.exchange.import_schema._MAX_INT4 services.exchange.merged_report._KEY_BYTES
        sources.code_host.rate_limit._MAX_DIGITS sources.git.enumerate_objects._SIZE_BYTES
        sources.git.locate._MAX_SECONDS sources.git.packs.index.OID_BYTES
        sources.git.packs.index._BYTES_PER_OBJECT sources.git.packs.index._MAX_FANOUT_IDS
        sources.git.repository._MAX_FOLDER_DEPTH sources.hooks.gitlab._DIGEST_BYTES
        sources.web.git_objects._INDEX_ENTRY_BYTES
        sources.web.json_process._CONTAINER_BYTES validation.cloud.gcp._ASSERTION_SECONDS
        validation.logins.mssql._MAX_FIELD_LENGTH validation.logins.mysql._MAX_PACKET
        validation.logins.scram._MAX_ITERATION_DIGITS validation.logins.tds._MAX_PACKET_BODY
        validation.pem._LINE_LENGTH
    """,
    "when another way of reading is chosen": """
        portal.forms._MAX_QUICK_BYTES scanner.text.encodings._MAX_RUN_CHARS
        services.exchange.formats.detect._MAX_DEPTH sources.files._OPEN_COST_BYTES
        sources.git.cat_file._MAX_BUFFERED sources.git.objects._REPORT_BYTES
        sources.git.packs.pack._MAX_OBJECT_BYTES sources.web.scripts._MAX_OPTIONS_BYTES
        sources.web.source_map._COMMENT_BYTES sources.web.urls._MAX_PARAMETER_NAME
    """,
    "how much of a text is shown": """
        api.parameters._MAX_ECHOED portal.charts._MAX_TICKS portal.cookies._FLASH_LENGTH services.report_upload._MAX_MESSAGE
        sources.code_host.api._MAX_MESSAGE
    """,
    "our own processes": """
        domain.clock.MAX_CLOCK_ERROR domain.slots.MAX_SLOTS domain.slots.SLOW_SECONDS
        net.forwarder._REQUEST_BYTES net.post._TLS_SHUTDOWN_SECONDS
        net.proxy._FLUSH_SECONDS notes.RULES_TIMEOUT services.activity.MEASURE_SECONDS
        services.delivery._STOP_TIMEOUT services.delivery._WRITE_TIMEOUT
        services.exchange.staged_import.MAX_ATTEMPTS services.pipeline.fence._RENEWALS_PER_TIMEOUT
        services.readiness._CONNECTION_TIMEOUT sources.git.attribution._MAX_PROCESSES
        sources.git.attribution._MAX_LISTED_TIPS sources.workspace._MAX_UNLOCKED_SECONDS
        validation.logins.connection._CLOSE_SECONDS
    """,
    "limits and choices of a run or a process": """
        services.pipeline.context.RunLimits sources.fork_pool.ProcessLimits
    """,
    "what the operator writes": """
        services.accounts.MAX_DUE_DAYS services.local_scan.options._MAX_IGNORE_BYTES
        services.local_scan.options._MAX_MARKS_BYTES services.local_scan.why_source.MAX_BYTES
    """,
}


def find_limits(path: str, text: str) -> Iterator[str]:
    """Yield the constants of a module that look like limits, and its classes of limits, as `module.name`."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Limits"):
            yield f"{module}.{node.name}"
        if not isinstance(node, ast.Assign) or not _is_number(node.value):
            continue
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and LIMIT.search(name.id) and not STEP.search(name.id):
                    yield f"{module}.{name.id}"


def _is_number(value: ast.expr) -> bool:
    """Whether an expression has only numbers, operators and other constants, and at least one number."""
    nodes = list(ast.walk(value))
    numbers = [node for node in nodes if isinstance(node, ast.Constant)]
    other = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.Name, ast.Call, ast.keyword)
    return (
        bool(numbers)
        and all(isinstance(number.value, int | float) for number in numbers)
        and all(isinstance(node, (*other, ast.operator, ast.unaryop, ast.expr_context)) for node in nodes)
    )


def test_every_limit_is_in_the_module_of_limits() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    names = [(path.relative_to(SOURCE).as_posix(), path) for path in paths]
    found = {
        limit
        for name, path in names
        if name.startswith(FOREIGN) and name != "limits.py"
        for limit in find_limits(name, path.read_text())
    }
    allowed = {name for names in NO_LIMITS.values() for name in names.split()}
    assert found - allowed == set(), "move it to outcrop/limits.py and docs/limits.md"
    assert allowed - found == set(), "is gone: remove it from the list"


def test_a_limit_is_recognised() -> None:
    text = "_MAX_PAGES = 5\nA, B_SECONDS = 1, 2.0\nREAD_BYTES = 1 << 10\nclass FormLimits: ...\nNAMES = {'MAX': 1}"
    assert list(find_limits("portal/page.py", text)) == [
        "portal.page._MAX_PAGES",
        "portal.page.B_SECONDS",
        "portal.page.FormLimits",
    ]
