"""Repositories with random histories, and what is in them by git's own commands."""

import os
import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.rulesets import github_token

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
DEFAULT = "refs/heads/main"
CHANGES = (
    *("add", "add", "delete", "move", "copy", "branch", "remove branch"),
    *("rewind", "tag", "remove tag", "merge", "pack"),
)


@dataclass
class Repository:
    """A bare repository that changes at random."""

    folder: Path
    rng: random.Random
    clock: int = 1_700_000_000
    made: int = 0  # tokens until now
    log: list[str] = field(default_factory=list)  # the changes, for a report
    exists: bool = False  # whether the folder is a repository already

    def __post_init__(self) -> None:
        if self.exists:
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.folder))
        self.commit(DEFAULT, {"README": b"nothing\n"})

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the environment of git, without anybody's configuration."""
        return dict(_ENVIRONMENT)

    def git(self, *arguments: str, stdin: bytes = b"", **environment: str) -> str:
        """Run git in the repository and return what it printed."""
        moment = f"{self.clock} +0000"
        done = subprocess.run(
            ["git", *arguments],
            env=_ENVIRONMENT
            | {"GIT_DIR": str(self.folder), "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
            | environment,
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    # --- changes

    def commit(
        self, ref: str, files: dict[str, bytes], *, without: tuple[str, ...] = (), onto: str | None = None
    ) -> None:
        """Commit these files to a ref, on top of it or of `onto`; `without` names files that are deleted."""
        self.clock += 60
        index = str(self.folder / "prove-index")
        parent = onto or self._resolve(ref)
        self.git("read-tree", *([parent] if parent else ["--empty"]), GIT_INDEX_FILE=index)
        lines = [f"0 {'0' * 40}\t{path}\n" for path in without]
        for path, content in files.items():
            blob = self.git("hash-object", "-w", "--stdin", stdin=content)
            lines.append(f"100644 {blob}\t{path}\n")
        self.git("update-index", "--index-info", stdin="".join(lines).encode(), GIT_INDEX_FILE=index)
        tree = self.git("write-tree", GIT_INDEX_FILE=index)
        parents = ["-p", parent] if parent else []
        self.git("update-ref", ref, self.git("commit-tree", tree, *parents, "-m", f"change {self.clock}"))

    def _resolve(self, ref: str) -> str | None:
        """Return the id that a ref points to; None if it does not exist."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        except subprocess.CalledProcessError:
            return None

    def refs(self, prefix: str) -> list[str]:
        """Return the names of the refs with this prefix."""
        return self.git("for-each-ref", "--format=%(refname)", prefix).split()

    def files(self, ref: str) -> list[str]:
        """Return the paths of the files of a ref that may have tokens."""
        return [
            path for path in self.git("ls-tree", "-r", "--name-only", ref).splitlines() if path != "README"
        ]

    def add_token(self, ref: str = DEFAULT) -> str:
        """Commit a new file with a new token to a ref; return its path."""
        self.made += 1
        path = f"{self.rng.choice(['', 'a/', 'a/b/'])}t{self.made}.env"
        self.commit(ref, {path: self._content(self.made)})
        return path

    def _content(self, number: int) -> bytes:
        filler = "".join(f"# line {self.rng.randrange(100)}\n" for _ in range(self.rng.randrange(5)))
        return f"{filler}token = {github_token(f'{self.folder.name}-{number}')}\n".encode()

    def change(self) -> None:
        """Make one random change."""
        name = self.rng.choice(CHANGES)
        self.log.append(name)
        getattr(self, "_" + name.replace(" ", "_"))()

    def _branch_to_change(self) -> str:
        return self.rng.choice(self.refs("refs/heads/"))

    def _add(self) -> None:
        self.add_token(self._branch_to_change())

    def _delete(self) -> None:
        ref = self._branch_to_change()
        if files := self.files(ref):
            self.commit(ref, {}, without=(self.rng.choice(files),))

    def _move(self) -> None:
        ref = self._branch_to_change()
        if files := self.files(ref):
            path = self.rng.choice(files)
            content = self._read(ref, path)
            self.commit(ref, {f"moved/{self.clock}.env": content}, without=(path,))

    def _copy(self) -> None:
        ref = self._branch_to_change()
        if files := self.files(ref):
            self.commit(ref, {f"copy/{self.clock}.env": self._read(ref, self.rng.choice(files))})

    def _read(self, ref: str, path: str) -> bytes:
        return (self.git("cat-file", "blob", f"{ref}:{path}") + "\n").encode()

    def _branch(self) -> None:
        self.git("update-ref", f"refs/heads/b{self.clock}", self._branch_to_change())
        self.clock += 60

    def _remove_branch(self) -> None:
        if others := [ref for ref in self.refs("refs/heads/") if ref != DEFAULT]:
            self.git("update-ref", "-d", self.rng.choice(others))

    def _rewind(self) -> None:
        """Force-push an older commit to a branch."""
        ref = self._branch_to_change()
        older = self.git("rev-list", "--max-count=6", ref).split()
        self.git("update-ref", ref, self.rng.choice(older))

    def _tag(self) -> None:
        self.clock += 60
        self.git("tag", "-a", "-m", "a tag", f"v{self.clock}", self._branch_to_change())

    def _remove_tag(self) -> None:
        if tags := self.refs("refs/tags/"):
            self.git("update-ref", "-d", self.rng.choice(tags))

    def _merge(self) -> None:
        ref, other = self._branch_to_change(), self._branch_to_change()
        ours, theirs = self._resolve(ref), self._resolve(other)
        if ours and theirs and ours != theirs:
            self.clock += 60
            tree = self.git("rev-parse", f"{ours}^{{tree}}")
            commit = self.git("commit-tree", tree, "-p", ours, "-p", theirs, "-m", "merge")
            self.git("update-ref", ref, commit)

    def _pack(self) -> None:
        """Pack all objects; what no ref reaches is dropped, as hosts do after a while."""
        self.git("gc", "--quiet", "--prune=now")

    # --- the truth

    def truth(self, missing: str = "") -> dict[tuple[str, str], str]:
        """Return the source type by (path, token) of every token that a ref reaches, by plumbing alone.

        `missing` is a blob whose object is not there.
        """
        found: dict[tuple[str, str], str] = {}
        raw = self.git("log", "--all", "--raw", "-m", "--root", "--no-renames", "--no-abbrev", "--format=")
        blobs: dict[str, set[str]] = {}
        for line in raw.splitlines():
            if line.startswith(":"):
                fields, path = line.split("\t", 1)
                blobs.setdefault(fields.split()[3], set()).add(path)
        at_tip = {
            (fields.split("\t", 1)[1], fields.split()[2])
            for fields in self.git("ls-tree", "-r", DEFAULT).splitlines()
        }
        for blob, paths in blobs.items():
            if set(blob) != {"0"} and blob != missing:
                text = self.git("cat-file", "blob", blob)
                for token in (word for word in text.split() if word.startswith("ghp_")):
                    for path in paths:
                        kind = "repo" if (path, blob) in at_tip else "commit"
                        if found.get((path, token)) != "repo":
                            found[path, token] = kind
        return found
