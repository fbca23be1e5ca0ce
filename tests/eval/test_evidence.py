from pack_fakes import judgment, labelled, passage, search

from eval.evidence import resolved, unresolved
from retrieval.passage import Passage

CASE = labelled(0, 0)


def test_a_passage_resolves_if_the_index_holds_it_word_for_word() -> None:
    same, other, gone = passage("same"), passage("other", text="Changed."), passage("gone")
    elsewhere = passage("same", corpus="another corpus")
    index = [Passage(id=id, title="Title", text="Text.", corpus="c") for id in ("more", "same", "other")]
    judged = [judgment(CASE, 0.9, [search("a", same, other), search("b", gone, same, elsewhere)])]
    missing = unresolved(judged, index)
    assert missing == [("another corpus", "same"), ("c", "gone"), ("c", "other")]
    assert resolved(judged[0], missing) == 2


def test_one_id_shown_with_two_texts_is_not_resolved() -> None:
    judged = [judgment(CASE, 0.9, [search("a", passage("p")), search("b", passage("p", text="Forged."))])]
    assert unresolved(judged, [Passage(id="p", title="Title", text="Text.", corpus="c")]) == [("c", "p")]


def test_nothing_shown_is_nothing_missing() -> None:
    assert unresolved([judgment(CASE, None)], []) == []
    assert resolved(judgment(CASE, None), []) == 0
