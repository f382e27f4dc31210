from collections import Counter
from tests.services import test_model as m
from tests.conftest import *
C = Counter()
orig = m.Account.list
def lst(self, asked):
    r = orig(self, asked)
    C["lists"] += 1
    C["n%d" % len(self.findings)] += 1
    C["total%d" % r["meta"]["total"]] += 1
    C["rows%d" % len(r["data"])] += 1
    C["filters%d" % sum(k not in ("page","per_page","order_by","order_dir") for k in asked)] += 1
    return r
m.Account.list = lst
ot = m.Account.triage
def tr(self, action, *a):
    r = ot(self, action, *a); C[f"{action}->{r}"] += 1; return r
m.Account.triage = tr
def test_it(backend, monkeypatch):
    m.test_every_history_ends_as_the_specification_says(backend, monkeypatch, 0)
    for k, v in sorted(C.items()): print(k, v)
    assert 0
