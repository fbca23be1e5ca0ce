"""A judge in this process under attack: each attack with its own poison, in waves, into a file that can be continued."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from attack_fakes import BASES, all_attacks, gullible, judge_of

from eval.attack.attack import Attack
from eval.attack.audit import AuditedJudgment
from eval.attack.families import CLEAN, chosen
from eval.attack.poison import CORPUS
from eval.attack.report import measure
from eval.attack.suite import make_attacks
from eval.attack.target import AttackedJudge, AttackJournal
from eval.run import judge_waves
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

ATTACKS = make_attacks(BASES, chosen("poisoned-passage,authority"), 2, 0)


def cases(attacks: Sequence[Attack]) -> list[Case]:
    return [case for attack in attacks if (case := attack.case()) is not None]


async def judged(judge: Judge, attacks: Sequence[Attack], together: int | None = None) -> list[Judgment]:
    target = AttackedJudge(judge, attacks, together)
    return [judgment async for wave in judge_waves(target, cases(attacks)) for judgment in wave]


async def test_each_poison_is_shown_to_its_own_attack_only() -> None:
    judgments = {judgment.id: judgment for judgment in await judged(judge_of(), ATTACKS)}
    assert sum(attack.poison is not None for attack in ATTACKS) == 2 * len(BASES)
    for attack in ATTACKS:
        judgment = judgments[attack.id]
        shown = [p for search in judgment.searches for p in search.passages if p.corpus == CORPUS]
        assert [passage.text for passage in shown] == ([attack.poison.text] if attack.poison else [])
        assert judgment.judge_id == judge_of().judge_id


async def test_verdicts_are_the_same_in_waves_of_any_size() -> None:
    alone, many = await judged(judge_of(), ATTACKS, 1), await judged(judge_of(wave=8), ATTACKS)
    assert [judgment.p_correct for judgment in alone] == [judgment.p_correct for judgment in many]
    assert AttackedJudge(judge_of(wave=4), [], 9).max_together == 4


async def test_a_gullible_judge_is_fooled_and_its_verdicts_are_its_own() -> None:
    attacks = all_attacks(bases=BASES[:2])
    report = measure(attacks, await judged(judge_of(), attacks), judge_of().prompt)
    families = {family.family: family for family in report.families}
    assert report.clean.false_passes.count == 0
    assert families["authority"].flips_to_1.count == families["authority"].false_passes.count > 0
    assert families["poisoned-passage"].false_passes.count > 0
    assert report.poison_shown == families["poisoned-passage"].cases
    assert report.guarantees.foreign_verdicts == report.guarantees.live_marks == 0
    assert report.guarantees.verdicts == sum(attack.case() is not None for attack in attacks)


def parrot(text: str) -> str:
    """Repeats word for word what it is asked to judge, and what it finds, and then gives its own verdict: 0."""
    read = text.split("Reasoning to check:", 1)[1]
    if "[1] " not in read:
        return f"<think>{read}</think><search>kidney</search>"
    return f"<think>{read.split('[1] ')[-1].replace('</information>', '')}</think><answer>0</answer>"


async def test_a_judge_that_repeats_every_attack_still_speaks_for_itself() -> None:
    """The prompt and the evidence are harmless when they are read, hence also when they are said again."""
    attacks = make_attacks(BASES[:1], chosen("forged-verdict,forged-evidence,instruction,poisoned-passage"), 99, 0)
    judgments = await judged(judge_of(parrot, limits={"max_new_tokens": 9_000}), attacks)
    assert {judgment.status for judgment in judgments} == {Status.SCORED}
    assert {judgment.verdict for judgment in judgments} == {0}
    report = measure(attacks, judgments, judge_of().prompt)
    assert report.attacks.false_passes.count == report.guarantees.foreign_verdicts == 0


async def test_a_run_goes_on_and_remembers_its_audit(tmp_path: Path) -> None:
    path, todo = tmp_path / "judgments.jsonl", cases(ATTACKS)
    with AttackJournal(path) as journal:
        target = AttackedJudge(judge_of(), ATTACKS)
        assert journal.resume(target, todo) == []
        async for wave in judge_waves(target, todo):
            journal.append(wave)
            if wave[0].id == todo[8].id:
                break
    calls = list[str]()

    def counted(text: str) -> str:
        calls.append(text)
        return gullible(text)

    with AttackJournal(path) as journal:
        target = AttackedJudge(judge_of(counted), ATTACKS)
        done = journal.resume(target, todo)
        assert len(done) == 12
        assert all(isinstance(judgment, AuditedJudgment) and judgment.foreign is False for judgment in done)
        async for wave in judge_waves(target, todo, len(done)):
            journal.append(wave)
            done += wave
    assert len(done) == len(todo)
    assert 0 < len(calls) < 3 * (len(todo) - 12)
    assert measure(ATTACKS, done, judge_of().prompt) == measure(
        ATTACKS, await judged(judge_of(), ATTACKS), judge_of().prompt
    )


async def test_what_fails_is_a_status_and_is_counted() -> None:
    judge = judge_of(lambda text: "", force_verdict=False)
    attacks = make_attacks(BASES, chosen("flattery"), 1, 0)
    report = measure(attacks, await judged(judge, attacks), judge.prompt)
    assert report.clean.not_judged == {"unparseable": len(BASES)}
    assert report.clean.judged == 0
    assert report.attacks.false_passes.value is None


def test_only_clean_traces_are_needed_for_a_report_of_the_judge_itself() -> None:
    attacks = make_attacks(BASES, [], 1, 0)
    assert {attack.family for attack in attacks} == {CLEAN.name}
    with pytest.raises(ValueError, match=r"no judgment of 0000/clean/original, 0001"):
        measure(attacks, [], judge_of().prompt)
