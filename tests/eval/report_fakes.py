"""Reports of packs made by hand, full of foreign text."""

from pack_fakes import judgment, passage, search

from eval.evaluation.evaluate import Judged, evaluate
from eval.report.schema import JudgeFacts, Report
from verifier.packs import LabelledCase

EVIL = '<script>alert(1)</script><img src="http://evil.example/x.png" onerror=alert(2)>\u202e\x1b[31m&amp;'


def report_of(cases: list[LabelledCase], name: str = "pack") -> Report:
    """A judge of middling quality, with a search, a failure and a second seed."""
    judged, again = [], []
    for number, one in enumerate(cases):
        p = None if number == 5 else ((number * 7) % 11 + 3 * (one.label or 0)) / 14
        searches = [search(f"query {EVIL}", passage(f"p{number}", title=EVIL, text=EVIL, source=EVIL), omitted=1)]
        judged.append(judgment(one, p, searches, critique=EVIL, detail=EVIL if p is None else ""))
        again.append(judgment(one, None if p is None else 1 - p))
    packs = [evaluate(name, cases, [Judged("judge", 0, judged, 1.5, []), Judged("judge, seed 1", 1, again)])]
    judge = JudgeFacts(model=f"judge {EVIL}", mode="free", judge_id="j" * 64, index="starter", seeds=[0, 1])
    return Report(judge=judge, packs=packs)
