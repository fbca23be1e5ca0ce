import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from curriculum.demonstrated import policy_text, ranked
from curriculum.faults import Fault, Side
from curriculum.swap_rules import spots
from curriculum.swapped_facts import Claim, sentences, side_of, swapped_claims
from curriculum.swapped_files import MANIFEST, demonstrate, write_claims
from eval.metrics.discrimination import auroc
from eval.metrics.intervals import clustered_bootstrap
from retrieval.passage import Passage
from retrieval.sources import jsonl, starter
from verifier.packs import read_pack
from verifier.parse import Tag, parse
from verifier.reward import reward
from verifier.types import StopReason


@pytest.fixture(scope="module")
def corpus() -> list[Passage]:
    return list(starter())


@pytest.fixture(scope="module")
def real(repository: Path) -> list[Passage]:
    folder = repository.parent / "shared" / "data" / "corpora"
    if not folder.is_dir():
        pytest.skip("the corpora in ../shared/data are not on this machine")
    return [passage for name in ("openstax_health", "medquad") for passage in jsonl(folder / f"{name}.jsonl.gz")]


def check(claims: list[Claim], side: Side) -> None:
    assert len({claim.passage.id for claim in claims}) == len(claims)
    assert sum(claim.label for claim in claims) * 2 == len(claims)
    said: dict[int, Counter[tuple[str, str]]] = {0: Counter(), 1: Counter()}
    for claim in claims:
        assert side_of(claim.passage) is side
        assert claim.source in " ".join(claim.passage.text.split())
        assert claim.spot in spots(claim.source)
        assert (claim.text == claim.source) == (claim.label == 1)
        if claim.label == 0 and claim.spot.fault in (Fault.ENTITY, Fault.NUMBER):
            text = claim.passage.text.replace(",", " ").replace(".", " ").split()
            assert claim.says not in text
        said[claim.label][claim.spot.group, claim.says] += 1
    # What wrong claims say was all said somewhere: as often as it was taken from another wrong claim.
    taken = Counter((claim.spot.group, claim.spot.says) for claim in claims if claim.label == 0)
    assert said[0] == taken


def test_starter_claims(corpus: list[Passage]) -> None:
    for side in Side:
        claims = swapped_claims(corpus, side)
        assert len(claims) >= 12
        check(claims, side)


@pytest.fixture(scope="module")
def real_claims(real: list[Passage]) -> dict[Side, list[Claim]]:
    return {side: swapped_claims(real, side) for side in Side}


def test_real_claims(real_claims: dict[Side, list[Claim]]) -> None:
    claims = real_claims
    for side in Side:
        check(claims[side], side)
        assert {claim.spot.fault for claim in claims[side]} == set(Fault)
    assert len(claims[Side.TEST]) > 1500
    assert 3 < len(claims[Side.TRAIN]) / len(claims[Side.TEST]) < 5
    assert not {claim.source for claim in claims[Side.TRAIN]} & {claim.source for claim in claims[Side.TEST]}


def test_words_alone_tell_little_of_real_claims(real_claims: dict[Side, list[Claim]]) -> None:
    train, test = real_claims[Side.TRAIN], real_claims[Side.TEST]
    words = CountVectorizer(ngram_range=(1, 1), min_df=3, token_pattern=r"\w+")
    fitted = LogisticRegression(C=0.1, max_iter=2000)
    fitted.fit(words.fit_transform(claim.text for claim in train), [claim.label for claim in train])
    scores = fitted.predict_proba(words.transform(claim.text for claim in test))[:, 1]
    labels = np.array([claim.label for claim in test], dtype=np.int64)
    found = clustered_bootstrap(auroc, labels, scores, [claim.id for claim in test])
    assert 0.44 < found.value < 0.56, found


def test_the_same_claims_every_time_and_others_with_another_seed(corpus: list[Passage]) -> None:
    first, again, other = (
        [claim.text for claim in swapped_claims(corpus, Side.TRAIN, seed=seed)] for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(("most", "made"), [(4, 4), (7, 4), (8, 8)])
def test_no_more_than_asked_for_and_still_balanced(corpus: list[Passage], most: int, made: int) -> None:
    claims = swapped_claims(corpus, Side.TRAIN, most=most)
    assert len(claims) == made
    assert sum(claim.label for claim in claims) * 2 == made


def test_a_sentence_of_two_passages_is_no_claim() -> None:
    line = "The kidneys of healthy people filter all of their blood many times."
    apart = "The lungs of healthy people take up oxygen from the air they breathe."
    twice = [Passage(id=str(number), text=text) for number, text in enumerate([line, line, apart, apart] * 4)]
    assert swapped_claims(twice, Side.TRAIN) == []
    once = [Passage(id=str(number), text=f"{(line, apart)[number % 2][:-1]} in {number} ways.") for number in range(40)]
    assert swapped_claims(once, Side.TRAIN)


@pytest.mark.parametrize(
    "sentence",
    [
        "It is a disease of the kidneys that is seen in adults.",
        "Too short to be a claim.",
        "The kidneys are shown in Figure 3 of the chapter on the urinary tract.",
        "Which of the kidneys is the larger one in most of the adults?",
        "The kidneys are <b>two</b> organs that filter the blood of the body.",
    ],
)
def test_what_cannot_stand_alone_is_left_out(sentence: str) -> None:
    assert sentences(sentence) == []
    good = "The kidneys are two organs that filter the blood of the body."
    assert sentences(f"{good} {sentence}") == [good]


@given(st.text(max_size=200))
def test_sentences_are_pieces_of_the_text(text: str) -> None:
    for sentence in sentences(text):
        assert sentence in " ".join(text.split())


def test_one_passage_in_five_is_for_testing_whatever_the_corpus() -> None:
    sides = Counter(side_of(Passage(id=f"p{number}", text="x")) for number in range(2000))
    assert 0.17 < sides[Side.TEST] / 2000 < 0.23
    assert side_of(Passage(id="p1", text="x")) is side_of(Passage(id="p1", text="y", corpus="other"))


def test_demonstrations_are_well_formed_and_right(corpus: list[Passage]) -> None:
    for claim in swapped_claims(corpus, Side.TRAIN):
        read = parse(policy_text(demonstrate(claim, ranked([claim.passage]))))
        assert [block.tag for block in read.blocks] == [Tag.THINK, Tag.SEARCH, Tag.THINK, Tag.ANSWER]
        earned = reward(read, claim.label, StopReason.ANSWERED)
        assert earned is not None
        assert earned.total == 1.0


def test_files(corpus: list[Passage], tmp_path: Path) -> None:
    manifest = write_claims(tmp_path / "one", corpus, ["starter"], most=40)
    write_claims(tmp_path / "two", corpus, ["starter"], most=40)
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()
    assert json.loads((tmp_path / "one" / MANIFEST).read_text()) == manifest
    cases = read_pack(tmp_path / "one" / "train")
    assert Counter(case.label for case in cases) == {0: 20, 1: 20}
    texts = {passage.id: passage.text for passage in corpus}
    for line in (tmp_path / "one" / "train.traces.jsonl").read_text().splitlines():
        row = json.loads(line)
        spot = row["spot"]
        assert row["reasoning"][spot["start"] : spot["end"]] == spot["says"]
        mended = row["reasoning"][: spot["start"]] + spot["right"] + row["reasoning"][spot["end"] :]
        assert mended == row["source_sentence"]
        assert mended in texts[row["passage_id"]]
    for line in (tmp_path / "one" / "train.demonstrations.jsonl").read_text().splitlines():
        evidence = next(piece["text"] for piece in json.loads(line)["pieces"] if piece["author"] == "evidence")
        unseen = [passage for passage in corpus if side_of(passage) is Side.TEST]
        assert not any(passage.text in evidence for passage in unseen)
