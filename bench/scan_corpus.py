"""Source trees, histories and hard files for the scan benchmark: made from Python's own library, the same every time."""

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

from bench.near_misses import Line, in_code, kinds
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import BUILT_IN_RULES
from outcrop.scanner.rules.toml import load_rule_files
from outcrop.sources.workspace import cache_folder

EVERY = 2_000_000  # bytes of new text from one planted credential to the next
_LINES = 10_000  # of near misses that are written together
_DAY = 86_400
_START = 1_577_836_800  # 2020-01-01
_TEXTS = {".py", ".txt", ".rst", ".c", ".html", ".xml", ".cfg", ".toml", ".decTest", ".idl", ".tcl"}

# Credentials that both scanners know; any of the marked values counts, as one reports a pair by its id and the other by its secret.
_KINDS = (
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
_CHANGED_BY_PERCENT = tuple(kind for kind in _KINDS if "/" in kind)
_WRITTEN: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: f"{text}\n".encode(),
    "base64": lambda text: b'SETTINGS = "' + base64.b64encode(f"# settings\n{text}\n".encode()) + b'"\n',
    "percent": lambda text: f'CALL = "https://ci.shop.io/run?with={quote(text, safe="")}"\n'.encode(),
    "unicode": lambda text: (
        b'SETTINGS = "' + "".join(f"\\u{ord(sign):04x}" for sign in text).encode() + b'"\n'
    ),
    "utf-16": lambda text: f"# settings\n{text}\n".encode("utf-16"),
    "gzip": lambda text: gzip.compress(f"# settings\n{text}\n".encode(), mtime=0),
}
_FILES = {"utf-16": "reg", "gzip": "txt.gz"}  # a file of its own, with this ending
ENCODINGS = tuple(_WRITTEN)


@dataclass(frozen=True)
class Planted:
    """A credential that stands somewhere in a corpus."""

    encoding: str
    values: list[str]
    written: str  # as it stands in the file, where that is text


@dataclass
class Planter:
    """Hands out the next credential each time enough new text has gone by."""

    seed: str
    planted: list[Planted] = field(default_factory=list)
    size: int = 0

    def due(self, size: int) -> Iterator[tuple[str | None, bytes]]:
        """Give credentials to write beside so much new text: a line, or the content of a file with the ending named."""
        self.size += size
        while len(self.planted) < self.size // EVERY:
            number = len(self.planted)
            turn, place = divmod(number, 5)
            encoding = ENCODINGS[place if place < 4 else 4 + turn % 2]
            kinds = _CHANGED_BY_PERCENT if encoding == "percent" else _KINDS
            text, values = split_marked_values(
                expand_template(kinds[turn % len(kinds)], f"{self.seed} {number}")
            )
            written = _WRITTEN[encoding](text)
            ending = _FILES.get(encoding)
            self.planted.append(Planted(encoding, values, "" if ending else written.decode()))
            yield ending, written


@dataclass(frozen=True)
class Corpus:
    path: Path
    size: int  # bytes to scan: of a history, of all its blobs
    planted: list[Planted] = field(default_factory=list)


def made_once(path: Path, make: Callable[[Path], Corpus]) -> Corpus:
    """Make a corpus unless an earlier run made it; what it holds stands in a file beside it, written last."""
    manifest = path.with_name(path.name + ".json")
    if not manifest.exists():
        if path.exists():  # an earlier run was interrupted
            shutil.rmtree(path)
        corpus = make(path)
        manifest.write_text(
            json.dumps({"size": corpus.size, "planted": [asdict(one) for one in corpus.planted]})
        )
    read = json.loads(manifest.read_text())
    return Corpus(path, read["size"], [Planted(**one) for one in read["planted"]])


# --- sources


@dataclass(frozen=True)
class _Source:
    path: str
    lines: list[bytes]
    size: int


def _sources() -> list[_Source]:
    """Read the standard library's text files, without what was installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root)
        if (
            path.suffix in _TEXTS
            and path.is_file()
            and not {"site-packages", "dist-packages"} & set(inner.parts)
        ):
            content = path.read_bytes()
            if 200 < len(content) < 1_000_000 and b"\0" not in content:
                found.append(_Source(inner.as_posix(), content.splitlines(keepends=True), len(content)))
    return found


@dataclass(frozen=True)
class _Editor:
    """Changes files the way people do: in a few places, lines go, lines from elsewhere come, and one is altered."""

    pool: list[bytes]
    chance: random.Random

    def edit(self, lines: list[bytes], places: int) -> int:
        """Edit in place; give how many bytes came."""
        came = 0
        for _ in range(places):
            start = self.chance.randrange(len(self.pool) - 8)
            new = self.pool[start : start + self.chance.randrange(9)]
            at = self.chance.randrange(len(lines) + 1)
            lines[at : at + self.chance.randrange(9)] = new
            came += sum(map(len, new))
        note = b"  # %d\n" % self.chance.randrange(10**6)
        at = self.chance.randrange(len(lines) + 1)
        lines[at : at + 1] = [(lines[at] if at < len(lines) else b"").rstrip() + note]
        return came + len(note)


def _editor(sources: list[_Source], seed: str) -> _Editor:
    return _Editor(
        [line for source in sources for line in source.lines if source.path.endswith(".py")],
        random.Random(seed),
    )


# --- a tree


def tree(folder: Path, size: int) -> Corpus:
    """Write edited copies of the sources until they have the size."""
    sources, planter = _sources(), Planter("tree")
    editor = _editor(sources, "tree")
    for number, source in enumerate(itertools.cycle(sources)):
        if planter.size >= size:
            break
        path = folder / f"copy-{number // len(sources) + 1:02}" / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = list(source.lines)
        editor.edit(lines, 1 + source.size // 8_000)
        for ending, written in planter.due(sum(map(len, lines))):
            if ending:
                path.with_name(f"settings-{len(planter.planted)}.{ending}").write_bytes(written)
            else:
                lines.insert(editor.chance.randrange(len(lines)), written)
        path.write_bytes(b"".join(lines))
    return Corpus(
        folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), planter.planted
    )


# --- a history


@dataclass(frozen=True)
class _Commit:
    changes: list[tuple[int, int]]  # a source, and which version of it
    topic: bool = False
    merge: bool = False
    tag: str | None = None


def history(folder: Path, size: int) -> Corpus:
    """Import a history with so many bytes of blobs, and repack it; tags `quarter` and `half` stand at these parts of it."""
    sources, planter = _sources(), Planter("history")
    commits = list(_plan(sources, size, random.Random("plan")))
    versions = Counter(number for commit in commits if not commit.merge for number, _ in commit.changes)
    _git("init", "--quiet", "--bare", "--initial-branch", "main", str(folder))
    command = ["git", "-C", str(folder), "-c", "core.compression=1", "fast-import", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        first, beside = _write_blobs(process.stdin, sources, versions, planter)
        _write_commits(process.stdin, sources, commits, first, beside)
    if process.returncode:
        raise SystemExit("git fast-import failed")
    _git("-C", str(folder), "repack", "-a", "-d", "-f", "--quiet")
    if (unpacked := unpacked_size(folder)) < size:
        raise SystemExit(f"the history has {unpacked:,} bytes of blobs where {size:,} were wanted")
    return Corpus(folder, unpacked, planter.planted)


def part_of_history(folder: Path, whole: Path, tag: str) -> Corpus:
    _git("init", "--quiet", "--bare", "--initial-branch", "main", str(folder))
    _git("-C", str(folder), "fetch", "--quiet", "--no-tags", str(whole), f"refs/tags/{tag}:refs/heads/main")
    return Corpus(folder, unpacked_size(folder))


def mirror(folder: Path, repository: Path) -> Corpus:
    """Clone a repository without its working tree: both scanners are to read the same objects and nothing else."""
    if repository != folder.resolve():  # else it is what an earlier run has cloned
        shutil.rmtree(folder, ignore_errors=True)  # it may be another one, or have grown
        _git("clone", "--quiet", "--mirror", str(repository), str(folder))
    return Corpus(folder, unpacked_size(folder))


def unpacked_size(folder: Path) -> int:
    ask = ["--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectsize)"]
    out = subprocess.run(
        ["git", "-C", str(folder), "cat-file", *ask], check=True, stdout=subprocess.PIPE
    ).stdout
    return sum(int(line[5:]) for line in out.splitlines() if line.startswith(b"blob "))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


def _plan(sources: list[_Source], size: int, chance: random.Random) -> Iterator[_Commit]:
    """Say what each commit changes: large files more often; every 40 commits a topic branch of five, on files only topics change.

    The first commit brings nine files of ten; the others come when they are first changed.
    """
    count: Counter[int] = Counter()
    planned = 0

    def change(numbers: set[int]) -> list[tuple[int, int]]:
        nonlocal planned
        planned += sum(sources[number].size for number in numbers)
        changes = [(number, count[number]) for number in sorted(numbers)]
        count.update(numbers)
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
        tag = tags.pop(0)[1] if tags and planned >= tags[0][0] * 1.05 and not topic else None
        yield _Commit(changes, topic=topic, tag=tag)
        if planned >= size * 1.05 and phase == 39:
            return


_Beside = dict[tuple[int, int], list[bytes]]


def _write_blobs(
    out: IO[bytes], sources: list[_Source], versions: Counter[int], planter: Planter
) -> tuple[dict[int, int], _Beside]:
    """Write all versions of one file after another: git packs them well at once. Every third planted line goes with the next version.

    Give the mark of each file's first version, and what else is to be said in the commits that bring a version.
    """
    editor = _editor(sources, "history")
    first: dict[int, int] = {}
    beside: _Beside = {}
    marks = itertools.count(1)

    def blob(content: bytes) -> int:
        mark = next(marks)
        out.write(b"blob\nmark :%d\ndata %d\n" % (mark, len(content)))
        out.write(content)
        return mark

    for number, source in enumerate(sources):
        lines = list(source.lines)
        gone: bytes | None = None
        files: list[tuple[str, bytes, int]] = []
        for version in range(versions[number]):
            came = editor.edit(lines, editor.chance.randint(1, 4)) if version else source.size
            if gone is not None and gone in lines:
                lines.remove(gone)
            gone = None
            for ending, written in planter.due(came):
                if ending:
                    files.append((f"settings-{len(planter.planted)}.{ending}", written, version))
                    continue
                lines.insert(editor.chance.randrange(len(lines) + 1), written)
                gone = written if len(planter.planted) % 3 == 0 else None
            mark = blob(b"".join(lines))
            first.setdefault(number, mark)
        for name, written, version in files:
            path = f"{Path(source.path).parent.as_posix()}/{name}".removeprefix("./")
            beside.setdefault((number, version), []).append(
                b"M 100644 :%d %s\n" % (blob(written), path.encode())
            )
    return first, beside


def _write_commits(
    out: IO[bytes], sources: list[_Source], commits: list[_Commit], first: dict[int, int], beside: _Beside
) -> None:
    """Write the commits; now and then one renames a file, and one deletes a file that may come back later."""
    chance = random.Random("commits")
    paths = [source.path for source in sources]
    present: set[int] = set()
    on_topic = False
    for number, commit in enumerate(commits):
        branch = b"topic" if commit.topic else b"main"
        who = b"Dev %d <dev%d@shop.io> %d +0000" % (number % 23, number % 23, _START + number * _DAY // 30)
        said = b"merge topic" if commit.merge else b"change %d" % number
        out.write(
            b"commit refs/heads/%s\nauthor %s\ncommitter %s\ndata %d\n%s\n"
            % (branch, who, who, len(said), said)
        )
        if commit.topic and not on_topic:
            out.write(b"from refs/heads/main\n")
        if commit.merge:
            out.write(b"merge refs/heads/topic\n")
        on_topic = commit.topic or (on_topic and not commit.merge)
        if not commit.topic and present and number % 60 == 7:
            renamed = chance.choice([one for one in sorted(present) if one % 8])
            new = f"moved/{number}/{Path(paths[renamed]).name}"
            out.write(b"R %s %s\n" % (paths[renamed].encode(), new.encode()))
            paths[renamed] = new
        if not commit.topic and present and number % 90 == 11:
            deleted = chance.choice([one for one in sorted(present) if one % 8])
            out.write(b"D %s\n" % paths[deleted].encode())
            present.discard(deleted)
        for source, version in commit.changes:
            out.write(b"M 100644 :%d %s\n" % (first[source] + version, paths[source].encode()))
            out.writelines(beside.get((source, version), []))
            present.add(source)
        if commit.tag:
            out.write(b"reset refs/tags/%s\nfrom refs/heads/main\n" % commit.tag.encode())


# --- hard files


def minified(folder: Path, size: int) -> Corpus:
    """Write JavaScript on one line: short names, and texts of all kinds."""
    chance = random.Random("minified")
    words = [
        line.decode(errors="replace").strip().replace('"', "'").replace("\\", "/")
        for source in _sources()
        for line in source.lines[::40]
    ]
    letters = string.ascii_letters

    def piece() -> str:
        a, b, c = chance.choices(letters, k=3)
        number = chance.randrange(10**9)
        return (
            f"function {a}{b}({a},{c}){{var {b}=this.{a}{c}({number},!0);return {a}?{b}[{number % 97}]:"
            f'{c}.call(this,"{chance.choice(words)}")}}{a}.exports={{key:{b},token:"{c}",id:{number}}},{b}.p="#{number:08x}";'
        )

    return _hard_file(folder / "app.min.js", size, piece)


def ordinary(folder: Path, size: int) -> Corpus:
    """Write sources one after the other into one file."""
    texts = (b"".join(source.lines).decode(errors="replace") for source in itertools.cycle(_sources()))
    return _hard_file(folder / "ordinary.py", size, lambda: next(texts))


def near_misses(folder: Path, size: int) -> Corpus:
    """Write examples of the rules, each spoilt in one way."""
    return _of_kinds(folder / "near_misses.py", size, kinds(load_rule_files([BUILT_IN_RULES])))


def near_misses_in_code(folder: Path, size: int) -> Corpus:
    """Write what code and configuration have instead of a credential."""
    return _of_kinds(folder / "near_misses.txt", size, in_code())


def _of_kinds(path: Path, size: int, of_kinds: dict[str, Line]) -> Corpus:
    """Write what is almost a credential on every line, of every kind by turns, and nothing that is found as one."""
    chance = random.Random("near misses")
    every = list(of_kinds.values())
    ruleset = load_ruleset(cache=cache_folder())

    def piece() -> str:
        lines = [chance.choice(every)(chance) + "\n" for _ in range(_LINES)]
        while found := {hit.line for hit in find(ruleset, "".join(lines).encode())}:
            lines = [line for number, line in enumerate(lines, 1) if number not in found]
        return "".join(lines)

    return _hard_file(path, size, piece)


def _hard_file(path: Path, size: int, piece: Callable[[], str]) -> Corpus:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            written += file.write(piece())
    return Corpus(path.parent, path.stat().st_size)
