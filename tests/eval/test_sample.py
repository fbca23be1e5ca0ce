from pack_fakes import pack

from eval.sample import sample_questions

CASES = pack([["A", "B"]] * 20)


def test_whole_questions_in_the_order_of_the_pack() -> None:
    kept = sample_questions(CASES, 5)
    assert len(kept) == 10
    assert len({one.question_id for one in kept}) == 5
    assert kept == [one for one in CASES if one in kept]


def test_a_larger_sample_holds_the_smaller_one_and_a_seed_changes_it() -> None:
    few, many = ({one.question_id for one in sample_questions(CASES, count)} for count in (5, 9))
    assert few < many
    assert {one.question_id for one in sample_questions(CASES, 5, seed=1)} != few
    assert {one.question_id for one in sample_questions(list(reversed(CASES)), 5)} == few


def test_all_where_there_are_no_more() -> None:
    assert sample_questions(CASES, None) == sample_questions(CASES, 20) == sample_questions(CASES, 99) == CASES
