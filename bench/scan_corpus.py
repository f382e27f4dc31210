"""Make source trees, git histories and files that are hard to scan, from Python's standard library.

The same corpora are made in every run.
"""

import base64
import gzip
import itertools
import json
import random
import shutil
import string
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

from bench.near_misses import LineMaker, code_kinds, near_miss_kinds, repeated_shapes
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import BUILT_IN_RULES
from outcrop.scanner.rules.toml import load_rule_files
from outcrop.sources.workspace import cache_folder

BYTES_PER_CREDENTIAL = 2_000_000  # new text from one planted credential to the next
_LINES_PER_SCAN = 10_000  # near misses that are scanned together, to drop those that are found
_DAY = 86_400  # seconds
_FIRST_COMMIT = 1_577_836_800  # 2020-01-01
_TEXT_SUFFIXES = {".py", ".txt", ".rst", ".c", ".html", ".xml", ".cfg", ".toml", ".decTest", ".idl", ".tcl"}

# Credentials that both scanners know. Any of the marked values counts: one scanner reports a key pair by its
# id, the other one by its secret.
_TEMPLATES = (
    'GITHUB_TOKEN = "«ghp_{{base62 30}}{{crc32_base62}}»"',
    'aws_access_key_id = "«AKIA{{base32 16}}»"\naws_secret_access_key = "«{{base64 19}}/{{base64 20}}»"',
    'STRIPE_SECRET_KEY = "«sk_live_51{{base62 97}}»"',
    'SLACK_BOT_TOKEN = "«xoxb-{{digits 12}}-{{digits 13}}-{{base62 24}}»"',
    'SLACK_WEBHOOK = "«https://hooks.slack.com/services/T{{BASE36 8}}/B{{BASE36 10}}/{{base62 24}}»"',
    'GITLAB_TOKEN = "«glpat-{{base64url 20}}»"',
    'DATABASE_URL = "postgres://shop:«{{base62 20}}»@db.shop.io:5432/shop"',
    'SENDGRID_API_KEY = "«SG.{{base64url 22}}.{{base64url 43}}»"',
    'NPM_TOKEN = "«npm_{{base62 30}}{{crc32_base62}}»"',
)
_TEMPLATES_WITH_SLASH = tuple(template for template in _TEMPLATES if "/" in template)
_ENCODERS: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: f"{text}\n".encode(),
    "base64": lambda text: b'SETTINGS = "' + base64.b64encode(f"# settings\n{text}\n".encode()) + b'"\n',
    "percent": lambda text: f'CALL = "https://ci.shop.io/run?with={quote(text, safe="")}"\n'.encode(),
    "unicode": lambda text: (
        b'SETTINGS = "' + "".join(f"\\u{ord(character):04x}" for character in text).encode() + b'"\n'
    ),
    "utf-16": lambda text: f"# settings\n{text}\n".encode("utf-16"),
    "gzip": lambda text: gzip.compress(f"# settings\n{text}\n".encode(), mtime=0),
}
_FILE_SUFFIXES = {"utf-16": "reg", "gzip": "txt.gz"}  # encodings that need a file of their own
ENCODINGS = tuple(_ENCODERS)


@dataclass(frozen=True)
class Planted:
    """A credential that was written into a corpus."""

    encoding: str
    values: list[str]
    written: str  # its encoded form, "" if it is not text


@dataclass
class Planter:
    """Makes credentials: one for every BYTES_PER_CREDENTIAL of new text."""

    seed: str
    planted: list[Planted] = field(default_factory=list)
    size: int = 0

    def take_due(self, size: int) -> Iterator[tuple[str | None, bytes]]:
        """Yield the credentials that are due after `size` bytes of new text, each with a file suffix or None.

        With a suffix the bytes are the content of a file of their own, else they are a line to insert.
        """
        self.size += size
        while len(self.planted) < self.size // BYTES_PER_CREDENTIAL:
            number = len(self.planted)
            turn, position = divmod(number, 5)
            encoding = ENCODINGS[position if position < 4 else 4 + turn % 2]
            templates = _TEMPLATES_WITH_SLASH if encoding == "percent" else _TEMPLATES
            text, values = split_marked_values(
                expand_template(templates[turn % len(templates)], f"{self.seed} {number}")
            )
            written = _ENCODERS[encoding](text)
            suffix = _FILE_SUFFIXES.get(encoding)
            self.planted.append(Planted(encoding, values, "" if suffix else written.decode()))
            yield suffix, written


@dataclass(frozen=True)
class Corpus:
    """A folder or repository to scan."""

    path: Path
    size: int  # bytes to scan; for a history, of all its blobs
    planted: list[Planted] = field(default_factory=list)


def make_corpus_once(path: Path, make: Callable[[Path], Corpus]) -> Corpus:
    """Make a corpus unless an earlier run has; a manifest, written last, marks a complete corpus."""
    manifest = path.with_name(path.name + ".json")
    if not manifest.exists():
        if path.exists():  # an earlier run was interrupted
            shutil.rmtree(path)
        corpus = make(path)
        manifest.write_text(
            json.dumps(
                {"size": corpus.size, "planted": [asdict(credential) for credential in corpus.planted]}
            )
        )
    data = json.loads(manifest.read_text())
    return Corpus(path, data["size"], [Planted(**entry) for entry in data["planted"]])


# --- sources


@dataclass(frozen=True)
class _Source:
    """A text file of the standard library."""

    path: str
    lines: list[bytes]
    size: int


def _read_sources() -> list[_Source]:
    """Return the text files of the standard library, without installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    sources = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if (
            path.suffix in _TEXT_SUFFIXES
            and path.is_file()
            and not {"site-packages", "dist-packages"} & set(relative.parts)
        ):
            content = path.read_bytes()
            if 200 < len(content) < 1_000_000 and b"\0" not in content:
                sources.append(_Source(relative.as_posix(), content.splitlines(keepends=True), len(content)))
    return sources


@dataclass(frozen=True)
class _Editor:
    """Edits files as people do: replaces a few lines by lines of other files, and changes one line."""

    pool: list[bytes]
    chance: random.Random

    def edit(self, lines: list[bytes], places: int) -> int:
        """Edit the lines in place and return the number of new bytes."""
        added = 0
        for _ in range(places):
            start = self.chance.randrange(len(self.pool) - 8)
            new = self.pool[start : start + self.chance.randrange(9)]
            position = self.chance.randrange(len(lines) + 1)
            lines[position : position + self.chance.randrange(9)] = new
            added += sum(map(len, new))
        note = b"  # %d\n" % self.chance.randrange(10**6)
        position = self.chance.randrange(len(lines) + 1)
        changed = lines[position] if position < len(lines) else b""
        lines[position : position + 1] = [changed.rstrip() + note]
        return added + len(note)


def _make_editor(sources: list[_Source], seed: str) -> _Editor:
    """Return an editor that inserts lines of the Python files."""
    return _Editor(
        [line for source in sources for line in source.lines if source.path.endswith(".py")],
        random.Random(seed),
    )


# --- a tree


def make_tree(folder: Path, size: int) -> Corpus:
    """Write edited copies of the sources until they have this size, with planted credentials."""
    sources, planter = _read_sources(), Planter("tree")
    editor = _make_editor(sources, "tree")
    for number, source in enumerate(itertools.cycle(sources)):
        if planter.size >= size:
            break
        path = folder / f"copy-{number // len(sources) + 1:02}" / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = list(source.lines)
        editor.edit(lines, 1 + source.size // 8_000)
        for suffix, written in planter.take_due(sum(map(len, lines))):
            if suffix:
                path.with_name(f"settings-{len(planter.planted)}.{suffix}").write_bytes(written)
            else:
                lines.insert(editor.chance.randrange(len(lines)), written)
        path.write_bytes(b"".join(lines))
    return Corpus(
        folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), planter.planted
    )


# --- a history


@dataclass(frozen=True)
class _Commit:
    """A commit to make."""

    changes: list[tuple[int, int]]  # (number of a source, number of its version)
    topic: bool = False  # on the topic branch
    merge: bool = False
    tag: str | None = None


def make_history(folder: Path, size: int) -> Corpus:
    """Make a repository with this many bytes of blobs, and tags `quarter` and `half` at these parts."""
    sources, planter = _read_sources(), Planter("history")
    commits = list(_plan_commits(sources, size, random.Random("plan")))
    versions = Counter(number for commit in commits if not commit.merge for number, _ in commit.changes)
    _git("init", "--quiet", "--bare", "--initial-branch", "main", str(folder))
    command = ["git", "-C", str(folder), "-c", "core.compression=1", "fast-import", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        first_marks, extra_files = _write_blobs(process.stdin, sources, versions, planter)
        _write_commits(process.stdin, sources, commits, first_marks, extra_files)
    if process.returncode:
        raise SystemExit("git fast-import failed")
    _git("-C", str(folder), "repack", "-a", "-d", "-f", "--quiet")
    if (unpacked := unpacked_size(folder)) < size:
        raise SystemExit(f"the history has {unpacked:,} bytes of blobs instead of {size:,}")
    return Corpus(folder, unpacked, planter.planted)


def make_part_of_history(folder: Path, history: Path, tag: str) -> Corpus:
    """Fetch the history up to a tag into a repository of its own."""
    _git("init", "--quiet", "--bare", "--initial-branch", "main", str(folder))
    _git("-C", str(folder), "fetch", "--quiet", "--no-tags", str(history), f"refs/tags/{tag}:refs/heads/main")
    return Corpus(folder, unpacked_size(folder))


def make_mirror(folder: Path, repository: Path) -> Corpus:
    """Clone a repository without its working tree, so that both scanners read the same objects only."""
    if repository != folder.resolve():  # otherwise it is the clone of an earlier run
        shutil.rmtree(folder, ignore_errors=True)  # it may be of another repository, or out of date
        _git("clone", "--quiet", "--mirror", str(repository), str(folder))
    return Corpus(folder, unpacked_size(folder))


def unpacked_size(folder: Path) -> int:
    """Return the total size of all blobs of a repository."""
    options = ["--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectsize)"]
    out = subprocess.run(
        ["git", "-C", str(folder), "cat-file", *options], check=True, stdout=subprocess.PIPE
    ).stdout
    return sum(int(line[5:]) for line in out.splitlines() if line.startswith(b"blob "))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


def _plan_commits(sources: list[_Source], size: int, chance: random.Random) -> Iterator[_Commit]:
    """Yield the commits of a history, in order.

    The first commit adds nine of ten files; the others are added when they are first changed. Large files are
    changed more often. Every 40 commits there is a topic branch of five commits, on files that only topic
    branches change.
    """
    versions: Counter[int] = Counter()
    planned_bytes = 0

    def change(numbers: set[int]) -> list[tuple[int, int]]:
        nonlocal planned_bytes
        planned_bytes += sum(sources[number].size for number in numbers)
        changes = [(number, versions[number]) for number in sorted(numbers)]
        versions.update(numbers)
        return changes

    groups = [[n for n in range(len(sources)) if (n % 8 == 0) is topic] for topic in (False, True)]
    weights = [list(itertools.accumulate(sources[n].size ** 0.5 for n in group)) for group in groups]
    yield _Commit(change({n for n in range(len(sources)) if n % 10}))
    tags = [(size // 4, "quarter"), (size // 2, "half")]
    topics: dict[int, int] = {}
    for number in itertools.count():
        phase = number % 40
        topic = 20 <= phase < 30 and phase % 2 == 0
        if phase == 30:
            yield _Commit(sorted(topics.items()), merge=True)
            topics.clear()
        changes = change(
            set(chance.choices(groups[topic], cum_weights=weights[topic], k=chance.randint(1, 6)))
        )
        if topic:
            topics.update(changes)
        tag = tags.pop(0)[1] if tags and planned_bytes >= tags[0][0] * 1.05 and not topic else None
        yield _Commit(changes, topic=topic, tag=tag)
        if planned_bytes >= size * 1.05 and phase == 39:
            return


_ExtraFiles = dict[tuple[int, int], list[bytes]]  # (source, version) -> fast-import lines of files to add


def _write_blobs(
    out: IO[bytes], sources: list[_Source], versions: Counter[int], planter: Planter
) -> tuple[dict[int, int], _ExtraFiles]:
    """Write all versions of each file as blobs, in order, which git packs well.

    Every third planted line is removed in the next version. Return the mark of each file's first version, and
    the files that the commit of a version adds.
    """
    editor = _make_editor(sources, "history")
    first_marks: dict[int, int] = {}
    extra_files: _ExtraFiles = {}
    marks = itertools.count(1)

    def write_blob(content: bytes) -> int:
        mark = next(marks)
        out.write(b"blob\nmark :%d\ndata %d\n" % (mark, len(content)))
        out.write(content)
        return mark

    for number, source in enumerate(sources):
        lines = list(source.lines)
        to_remove: bytes | None = None
        files: list[tuple[str, bytes, int]] = []
        for version in range(versions[number]):
            added = editor.edit(lines, editor.chance.randint(1, 4)) if version else source.size
            if to_remove is not None and to_remove in lines:
                lines.remove(to_remove)
            to_remove = None
            for suffix, written in planter.take_due(added):
                if suffix:
                    files.append((f"settings-{len(planter.planted)}.{suffix}", written, version))
                    continue
                lines.insert(editor.chance.randrange(len(lines) + 1), written)
                to_remove = written if len(planter.planted) % 3 == 0 else None
            mark = write_blob(b"".join(lines))
            first_marks.setdefault(number, mark)
        for name, written, version in files:
            path = f"{Path(source.path).parent.as_posix()}/{name}".removeprefix("./")
            extra_files.setdefault((number, version), []).append(
                b"M 100644 :%d %s\n" % (write_blob(written), path.encode())
            )
    return first_marks, extra_files


def _write_commits(
    out: IO[bytes],
    sources: list[_Source],
    commits: list[_Commit],
    first_marks: dict[int, int],
    extra_files: _ExtraFiles,
) -> None:
    """Write the commits; some of them rename a file or delete one, which may be added again later."""
    chance = random.Random("commits")
    paths = [source.path for source in sources]
    present: set[int] = set()
    on_topic = False
    for number, commit in enumerate(commits):
        branch = b"topic" if commit.topic else b"main"
        author = b"Dev %d <dev%d@shop.io> %d +0000" % (
            number % 23,
            number % 23,
            _FIRST_COMMIT + number * _DAY // 30,
        )
        message = b"merge topic" if commit.merge else b"change %d" % number
        out.write(
            b"commit refs/heads/%s\nauthor %s\ncommitter %s\ndata %d\n%s\n"
            % (branch, author, author, len(message), message)
        )
        if commit.topic and not on_topic:
            out.write(b"from refs/heads/main\n")
        if commit.merge:
            out.write(b"merge refs/heads/topic\n")
        on_topic = commit.topic or (on_topic and not commit.merge)
        if not commit.topic and present and number % 60 == 7:
            renamed = chance.choice([source for source in sorted(present) if source % 8])
            new = f"moved/{number}/{Path(paths[renamed]).name}"
            out.write(b"R %s %s\n" % (paths[renamed].encode(), new.encode()))
            paths[renamed] = new
        if not commit.topic and present and number % 90 == 11:
            deleted = chance.choice([source for source in sorted(present) if source % 8])
            out.write(b"D %s\n" % paths[deleted].encode())
            present.discard(deleted)
        for source, version in commit.changes:
            out.write(b"M 100644 :%d %s\n" % (first_marks[source] + version, paths[source].encode()))
            out.writelines(extra_files.get((source, version), []))
            present.add(source)
        if commit.tag:
            out.write(b"reset refs/tags/%s\nfrom refs/heads/main\n" % commit.tag.encode())


# --- files that are hard to scan


def make_minified_file(folder: Path, size: int) -> Corpus:
    """Write minified JavaScript on one line."""
    chance = random.Random("minified")
    words = [
        line.decode(errors="replace").strip().replace('"', "'").replace("\\", "/")
        for source in _read_sources()
        for line in source.lines[::40]
    ]
    letters = string.ascii_letters

    def make_statement() -> str:
        a, b, c = chance.choices(letters, k=3)
        number = chance.randrange(10**9)
        return (
            f"function {a}{b}({a},{c}){{var {b}=this.{a}{c}({number},!0);return {a}?{b}[{number % 97}]:"
            f'{c}.call(this,"{chance.choice(words)}")}}{a}.exports={{key:{b},token:"{c}",id:{number}}},'
            f'{b}.p="#{number:08x}";'
        )

    return _write_until(folder / "app.min.js", size, make_statement)


def make_ordinary_file(folder: Path, size: int) -> Corpus:
    """Write the sources into one file, one after the other."""
    texts = (b"".join(source.lines).decode(errors="replace") for source in itertools.cycle(_read_sources()))
    return _write_until(folder / "ordinary.py", size, lambda: next(texts))


def make_near_misses_file(folder: Path, size: int) -> Corpus:
    """Write examples of the rules, each with one defect."""
    return _write_unreported_lines(
        folder / "near_misses.py", size, near_miss_kinds(load_rule_files([BUILT_IN_RULES]))
    )


def make_code_file(folder: Path, size: int) -> Corpus:
    """Write lines of code and configuration that have a keyword without a credential."""
    return _write_unreported_lines(folder / "near_misses.txt", size, code_kinds())


def make_repeated_shapes_file(folder: Path, size: int) -> Corpus:
    """Write each text that is almost an assignment many times: in one line, and on a line of its own."""
    shapes = repeated_shapes()
    each = max(1_000, size // len(shapes) // 2)
    texts = (
        joint.join([shape] * (each // len(shape) + 1)) + "\n"
        for shape in itertools.cycle(shapes)
        for joint in (",", "\n")
    )
    return _write_until(folder / "shapes.txt", size, lambda: next(texts))


def _write_unreported_lines(path: Path, size: int, kinds: dict[str, LineMaker]) -> Corpus:
    """Write lines of random kinds, without those that the scanner reports as a credential."""
    chance = random.Random("near misses")
    line_makers = list(kinds.values())
    ruleset = load_ruleset(cache=cache_folder())

    def make_lines() -> str:
        lines = [chance.choice(line_makers)(chance) + "\n" for _ in range(_LINES_PER_SCAN)]
        while found := {hit.line for hit in find(ruleset, "".join(lines).encode())}:
            lines = [line for number, line in enumerate(lines, 1) if number not in found]
        return "".join(lines)

    return _write_until(path, size, make_lines)


def _write_until(path: Path, size: int, make_text: Callable[[], str]) -> Corpus:
    """Write texts into one file until it has this size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            written += file.write(make_text())
    return Corpus(path.parent, path.stat().st_size)
