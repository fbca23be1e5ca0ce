from pack_fakes import judgment, labelled, pack, passage, search

from eval.evaluation.examples import FALSE_ALARM, FALSE_PASS, NOT_JUDGED, TRUE_ALARM, TRUE_PASS, examples

CASES = pack([["A", "B", None], ["B", "B"], ["A", "A"]])


def test_the_surest_of_each_kind_and_mistakes_first() -> None:
    p = [0.3, 0.7, 0.9, 0.95, 0.8, None, 0.6]
    found = examples(CASES, [judgment(one, value) for one, value in zip(CASES, p, strict=True)])
    assert [(one.kind, one.trace) for one in found] == [
        (FALSE_PASS, "q1#0"),  # of its question the surest
        (FALSE_PASS, "q0#1"),
        (FALSE_ALARM, "q0#0"),
        (TRUE_PASS, "q2#1"),
        (NOT_JUDGED, "q2#0"),
    ]  # the unlabelled one is neither right nor wrong


def test_no_more_than_wanted() -> None:
    many = pack([["B"]] * 9)
    found = examples(many, [judgment(one, 0.1) for one in many], per_kind=2)
    assert [one.kind for one in found] == [TRUE_ALARM] * 2


def test_an_example_holds_what_one_wants_to_see() -> None:
    one = labelled(0, 0, "B", text="So B.")
    (found,) = examples([one], [judgment(one, 0.9, [search("k", passage("p9"), omitted=2)], critique="Fine.")])
    assert found.question == "Question 0?"
    assert found.options["B"] == "Option B"
    assert (found.gold, found.answer, found.label, found.verdict, found.p) == ("A", "B", 0, 1, 0.9)
    assert (found.reasoning, found.critique) == ("So B.", "Fine.")
    assert found.searches[0].passages[0].id == "p9"
    assert found.searches[0].omitted == 2
