"""Precision and recall on the labelled corpus, scaled down: `make bench-accuracy` has the whole of it."""

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.sources.located import applicable_hits
from tests.corpus.make import Made, corpus
from tests.corpus.tally import Finding, Tally, tally
from tests.support.rulesets import ruleset


def findings(made: Made) -> list[Finding]:
    found = scan_content(ruleset(), made.text.encode(), Confidence.MEDIUM)
    return [(hit.line, reveal(hit.secret)) for _, hit in applicable_hits(found, made.path.encode())]


@pytest.mark.parametrize("split", ["seen", "held_out"])
def test_the_goals_are_held(split):
    total = Tally()
    for made in corpus(split, 3):
        total += tally(made, findings(made))
    assert total.recall >= 0.95, [(label.template, label.value) for _, label in total.misses]
    assert total.precision >= 0.97, total.errors


def test_the_corpus_is_large_and_of_many_kinds_and_the_same_every_time():
    made = [file for split in ("seen", "held_out") for file in corpus(split, 11)]
    labels = [label for file in made for label in file.labels]
    assert len({file.kind for file in made if any(label.wanted for label in file.labels)}) >= 20
    assert sum(label.wanted for label in labels) >= 1_000
    assert sum(not label.wanted for label in labels) >= 3_000
    assert made == [file for split in ("seen", "held_out") for file in corpus(split, 11)]


def test_a_label_is_at_its_place():
    for file in corpus("seen", 1):
        lines = file.text.split("\n")
        for label in file.labels:
            assert label.value.split("\n")[0] in lines[label.line - 1]
