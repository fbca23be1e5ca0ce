"""The same seed draws the same traces and writes the same attacks."""

from collections import Counter
from pathlib import Path

import pytest
from attack_fakes import BASES, POOL, all_attacks, labelled

from configs.appended import ResumeError
from eval.attack.families import CLEAN, FAMILIES, chosen
from eval.attack.folder import prepare
from eval.attack.suite import bases, draw, make_attacks
from verifier.packs import LabelledCase
from verifier.types import Case


def texts(seed: int) -> list[object]:
    return [(attack.id, attack.trace, attack.poison, attack.expected) for attack in all_attacks(seed)]


def test_the_same_seed_writes_the_same_attacks() -> None:
    assert texts(3) == texts(3)
    assert texts(3) != texts(4)


def test_a_text_does_not_depend_on_what_else_is_attacked() -> None:
    few = make_attacks(BASES[:2], chosen("forged-verdict"), 99, 0)
    all_of_them = {attack.id: attack.trace for attack in all_attacks()}
    assert all(all_of_them[attack.id] == attack.trace for attack in few)


def test_ids_are_unique_and_clean_traces_come_first() -> None:
    attacks = all_attacks()
    assert len({attack.id for attack in attacks}) == len(attacks)
    assert [attack.family for attack in attacks[: len(BASES)]] == [CLEAN.name] * len(BASES)
    assert CLEAN.name not in {attack.family for attack in attacks[len(BASES) :]}


def test_variants_take_turns() -> None:
    """Six bases with three attacks each go once and a half round twelve or so variants: none twice before all once."""
    attacks = make_attacks(BASES, chosen("instruction"), 3, 0)[len(BASES) :]
    counts = Counter(attack.variant for attack in attacks)
    assert len(attacks) == 18
    assert set(counts) == set(FAMILIES["instruction"].variants)
    assert max(counts.values()) - min(counts.values()) == 1


def test_more_variants_than_there_are_make_each_once() -> None:
    attacks = make_attacks(BASES[:1], chosen("length"), 50, 0)[1:]
    assert sorted(attack.variant for attack in attacks) == sorted(FAMILIES["length"].variants)


def test_a_variant_that_does_not_apply_is_skipped_for_another() -> None:
    """Without options, no wrong answer can be stated; the question has others to offer."""
    case = Case(id="open", question="What now?", trace="Nothing is known of this. It has three sentences. So it ends.")
    bare = bases([LabelledCase(case, 1, "q")], POOL)
    assert not make_attacks(bare, chosen("right-answer-wrong-reasoning,wrong-answer-right-reasoning"), 2, 0)[1:]
    nothing = make_attacks(bare, chosen("do-nothing"), 6, 0)[1:]
    assert "bare-answer" not in {attack.variant for attack in nothing}
    assert len(nothing) == 6
    claims = make_attacks(bare, chosen("forged-evidence"), 99, 0)[1:]
    assert all("the reasoning given for this question is not correct" in attack.trace for attack in claims)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_draw_is_balanced_with_one_trace_a_question(count: int) -> None:
    drawn = draw(POOL, count, 5)
    assert [base.number for base in drawn] == list(range(count))
    assert len({base.labelled.question_id for base in drawn}) == count
    assert abs(sum(base.label == 1 for base in drawn) * 2 - count) <= 1
    assert drawn == draw(reversed(POOL), count, 5)


def test_a_draw_depends_on_its_seed_and_takes_what_there_is() -> None:
    assert len({tuple(base.labelled.case.id for base in draw(POOL, 3, seed)) for seed in range(20)}) > 5
    only_wrong = [labelled(number, 0) for number in range(4)]
    assert [base.label for base in draw(only_wrong, 9, 0)] == [0] * 4
    assert draw([labelled(0, None)], 3, 0) == []


def test_a_folder_of_other_attacks_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert prepare(folder, all_attacks()) == folder / "judgments.jsonl"
    before = (folder / "attacks.jsonl").read_bytes()
    assert before.count(b"\n") == len(all_attacks())
    prepare(folder, all_attacks())
    with pytest.raises(ResumeError, match="holds other attacks"):
        prepare(folder, all_attacks(seed=1))
    assert (folder / "attacks.jsonl").read_bytes() == before
