"""Parse large JSON of a site in a child process with a memory limit: some kilobytes can become gigabytes.

The process that all accounts share calls `read_source_map` and `read_json_links`. A child that dies raises
ParserDiedError, which is one gap. Small texts are parsed without a child: that starts faster.
"""

import gc
import marshal
import os
import resource
import subprocess
import sys
import threading
from dataclasses import astuple
from typing import Any

from outcrop.limits import PARSER_LIMITS, ParserLimits
from outcrop.sandbox import Sandbox, become_nobody, is_setting, python_folders, restrict
from outcrop.sources.web.links import json_links
from outcrop.sources.web.source_map import OriginalFile, SourceMapError, original_files
from outcrop.sources.web.urls import WebLink, WebLinkKind

_SOURCE_MAP, _LINKS = "source-map", "links"
_CONTAINER_BYTES = 160  # of an empty list or object, in its list, while it is parsed
_TOO_MANY_FILES = "more than {:,} original files in a source map: the rest was not read"


class ParserDiedError(Exception):
    """A child process has reached one of its limits, or could not be started."""


# All accounts share the memory of the machine.
_slots = threading.BoundedSemaphore(2)


def read_source_map(
    raw: bytes, limits: ParserLimits = PARSER_LIMITS
) -> tuple[list[OriginalFile], str | None]:
    """Return the first `limits.files` original files of a source map, and a problem if there are more.

    Raise SourceMapError if the map is malformed, and ParserDiedError if it costs more than `limits`.
    """
    if len(raw) <= limits.own_bytes:
        files, problem = _take_files(raw, limits.files)
        return files, problem
    result = _run_child([_SOURCE_MAP, str(limits.files)], raw, limits)
    if isinstance(result, str):
        raise SourceMapError(result)
    pairs, problem = result
    return [OriginalFile(name, content) for name, content in pairs], problem


def read_json_links(body: bytes, url: str, limits: ParserLimits = PARSER_LIMITS) -> list[WebLink]:
    """Return the links in JSON at `url`, as `json_links` does; raise ParserDiedError past a limit."""
    if len(body) <= limits.own_bytes:
        return json_links(body, url)
    # Other users of the machine can read the arguments of a process, and a URL can contain a credential.
    links = _run_child([_LINKS, ""], url.encode() + b"\n" + body, limits)
    return [WebLink(link, WebLinkKind(kind), *rest) for link, kind, *rest in links]


def _take_files(raw: bytes, count: int) -> tuple[list[OriginalFile], str | None]:
    """Return the first `count` original files of a source map, and a problem if there are more."""
    files: list[OriginalFile] = []
    for file in original_files(raw):
        if len(files) == count:
            return files, _TOO_MANY_FILES.format(count)
        files.append(file)
    return files, None


def _run_child(arguments: list[str], text: bytes, limits: ParserLimits) -> Any:
    """Return what a child process makes of `text`; raise ParserDiedError if it dies."""
    # -I: the current folder, which may be that of a scanned project, has no modules.
    command = [sys.executable, "-I", "-m", __name__, str(limits.memory), str(limits.cpu_seconds), *arguments]
    with _slots:
        done = subprocess.run(command, input=text, capture_output=True, check=False, env=_environment())
    if done.returncode:
        raise ParserDiedError(f"the JSON needs more than {limits.memory >> 20:,} MB or is too slow to read")
    return marshal.loads(done.stdout)  # noqa: S302 - our own process wrote plain values


def _environment() -> dict[str, str]:
    """Return the environment of a child: that of this process without our settings."""
    return {name: value for name, value in os.environ.items() if not is_setting(name)}


def main(memory: str, cpu_seconds: str, kind: str, argument: str) -> None:
    """Limit this child process, parse standard input, and write the result to standard output with marshal.

    With the kind of a source map, `argument` is the largest number of files, and the result is a text if the
    map is malformed. Otherwise the first line of the input is the URL, and the result are links. Exit with 1,
    without a result, if the text would need more than `memory` bytes.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))
    become_nobody()
    # It reads the modules of Python, and nothing else.
    restrict(Sandbox(readable=python_folders()))
    gc.disable()  # it would search millions of small values again and again
    text = sys.stdin.buffer.read()
    # Each takes 80 bytes, other values less than their share. The parser needs minutes to fail at the limit.
    if (text.count(b"[") + text.count(b"{")) * _CONTAINER_BYTES > int(memory):
        sys.exit(1)
    result: object
    if kind == _SOURCE_MAP:
        try:
            files, problem = _take_files(text, int(argument))
            result = [(file.name, file.content) for file in files], problem
        except SourceMapError as error:
            result = str(error)
    else:
        url, _, body = text.partition(b"\n")
        result = [
            tuple(str(value) if isinstance(value, WebLinkKind) else value for value in astuple(link))
            for link in json_links(body, url.decode())
        ]
    sys.stdout.buffer.write(marshal.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
