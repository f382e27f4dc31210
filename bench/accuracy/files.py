"""Choose the configuration files that readers read in full, to count what no rule reports.

Half of the files are drawn from each half of the repositories, as evenly over repositories as possible. Two
of three have a word such as "password" or "token" in them: most others have no credential to find.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bench.accuracy.repositories import HALVES, Half, ListedRepository
from bench.accuracy.sample import order_of, share_out
from bench.accuracy.tree import TreeFile, list_files, read_blobs

COUNT = 300
TEXT_LIMIT = 60_000  # bytes
_HINTED_SHARE = 2 / 3

_NAME = re.compile(
    r".*\.(ini|ya?ml|json|toml|properties|env|xml|conf|cfg|config|cnf|tf|tfvars|sh|bash|ps1|plist|gradle)"
    r"|.*Dockerfile.*|.*docker-compose.*|\.env.*|.*\.env\..*|\.(htaccess|npmrc|pypirc|netrc|pgpass)",
    re.IGNORECASE,
)
_NO_CONFIGURATION = re.compile(  # lock files, JSON schemas and translations
    r".*lock[^/]*|.*\.schema\.json|(.*\.)?strings[^/]*\.xml"
    r"|(.*/)?(langs?|locales?|i18n|l10n|translations?|values-[\w-]+|strings)/.*",
    re.IGNORECASE,
)
_HINT = re.compile(
    rb"passw|passphrase|pwd|secret|token|credential|auth|(api|private|access)[_-]?key|://[^/\s]*:[^/\s]*@",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ChosenFile:
    """A configuration file in a repository."""

    repository: ListedRepository
    file: TreeFile

    @property
    def half(self) -> Half:
        """Return the half of its repository."""
        return self.repository.half

    def header(self) -> dict[str, Any]:
        """Return what identifies the file."""
        return {"repo": self.repository.repo, "commit": self.repository.commit, "path": self.file.path}


def is_configuration(file: TreeFile) -> bool:
    """Whether the name and the size of a file are those of a configuration file."""
    return (
        0 < file.size < TEXT_LIMIT
        and bool(_NAME.fullmatch(PurePosixPath(file.path).name))
        and not _NO_CONFIGURATION.fullmatch(file.path)
    )


def choose_files(
    present: Iterable[tuple[ListedRepository, Path]], count: int = COUNT
) -> list[tuple[ChosenFile, str]]:
    """Return the files to read with their texts, ordered by half and repository."""
    texts: dict[ChosenFile, str] = {}
    candidates: dict[tuple[Half, bool], dict[str, list[ChosenFile]]] = defaultdict(lambda: defaultdict(list))
    for repository, git_dir in present:
        known: set[str] = set()
        for chosen, content in _read_configuration(repository, git_dir):
            if chosen.file.blob in known:  # the same text under another name
                continue
            known.add(chosen.file.blob)
            hinted = bool(_HINT.search(content))
            candidates[repository.half, hinted][repository.repo].append(chosen)
            texts[chosen] = content.decode("utf-8")
    hinted_count = round(count * _HINTED_SHARE)
    drawn = [
        chosen
        for half in HALVES
        for hinted, part in ((True, hinted_count // 2), (False, (count - hinted_count) // 2))
        for chosen in spread(candidates[half, hinted], part)
    ]
    return [(chosen, texts[chosen]) for chosen in sorted(drawn, key=_place)]


def _read_configuration(repository: ListedRepository, git_dir: Path) -> Iterator[tuple[ChosenFile, bytes]]:
    """Yield the configuration files of a repository that are text."""
    files = [file for file in list_files(git_dir, repository.commit) if is_configuration(file)]
    # Enough for any share; reading all of them would take minutes.
    drawn = sorted(files, key=lambda file: order_of("file", repository.repo, file.path))[:200]
    for file, content in read_blobs(git_dir, drawn):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if b"\0" not in content:
            yield ChosenFile(repository, file), content


def spread(candidates: Mapping[str, list[ChosenFile]], count: int) -> Iterator[ChosenFile]:
    """Yield `count` files, as evenly over the repositories as possible."""
    shares = share_out(count, {repo: len(files) for repo, files in candidates.items()})
    for repo, share in shares.items():
        ordered = sorted(candidates[repo], key=lambda chosen: order_of("file", repo, chosen.file.path))
        yield from ordered[:share]


def _place(chosen: ChosenFile) -> tuple[int, str, str]:
    return HALVES.index(chosen.half), chosen.repository.repo, chosen.file.path
