"""`make bench-accuracy`: both parts.

python -m bench.accuracy [--per-block N] [--work DIR]
                         [--repos DIR [--only-repos] [--others] [--unlabelled FILE] [--json FILE]]
"""

import argparse
from pathlib import Path

from bench.accuracy.generated import run_generated
from bench.accuracy.real import run_real


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-block", type=float, default=11, help="about how often each template is used")
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    parser.add_argument("--repos", type=Path, help="public repositories: DIR/owner+name")
    parser.add_argument(
        "--others", action="store_true", help="compare with other scanners, which takes hours"
    )
    parser.add_argument("--unlabelled", type=Path, help="write the findings without a label to this file")
    parser.add_argument("--json", type=Path, help="write the figures of part 2 to this file")
    parser.add_argument("--only-repos", action="store_true", help="leave out part 1")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not arguments.only_repos:
        run_generated(work, arguments.per_block)
    if arguments.repos is None:
        print("\nPart 2, public repositories, was left out: it needs --repos DIR (docs/accuracy.md).")
        return
    run_real(
        arguments.repos,
        work,
        others=arguments.others,
        unlabelled=arguments.unlabelled,
        json_file=arguments.json,
    )


if __name__ == "__main__":
    main()
