import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval_fakes import FakeEncoder

from retrieval import bm25
from retrieval.bm25 import DESCRIPTION_FILE, FOLDER, Bm25Ranker, add_bm25, best
from retrieval.build import build_index
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.manifest import Manifest
from retrieval.passage import BuildError, IndexCorruptError, IndexMismatchError, Passage, QueryError
from retrieval.sources import read

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

TEXTS = [
    "Warfarin inhibits the recycling of vitamin K.",
    "Vitamin D deficiency softens bones.",
    "Hepatitis B and hepatitis C harm the liver.",
    "Bleeding under warfarin: stop warfarin, give vitamin K.",
    "Vitamin D deficiency softens BONES!",  # the words of row 1 again
]


def index_of(folder: Path, texts: Sequence[str]) -> Path:
    build_index(
        [Passage(id=str(n), text=text) for n, text in enumerate(texts)],
        FakeEncoder(),
        folder,
        cleaner=Cleaner(KEEP_ALL),
    )
    add_bm25(folder)
    return folder


def opened(folder: Path, *, verify: bool = False) -> Bm25Ranker:
    return Bm25Ranker.open(folder, Manifest.load(folder), verify=verify)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_of(tmp_path_factory.mktemp("indexes") / "small", TEXTS)


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy"))


def lucene(query: str, documents: Sequence[str]) -> list[float]:
    """BM25 as written down by Robertson and Zaragoza, with Lucene's idf; documents and query are words between spaces."""
    bags = [Counter(document.split()) for document in documents]
    mean_length = sum(bag.total() for bag in bags) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in query.split():
            holders = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
            score += idf * bag[word] / (bag[word] + 1.2 * (0.25 + 0.75 * bag.total() / mean_length))
        scores.append(score)
    return scores


def test_scores_are_those_of_the_formula(small: Path) -> None:
    # The same texts after lower-casing, stop words and stemming, by hand.
    words = [
        "warfarin inhibit recycl vitamin k",
        "vitamin d defici soften bone",
        "hepat b hepat c harm liver",
        "bleed under warfarin stop warfarin give vitamin k",
        "vitamin d defici soften bone",
    ]
    (ranking,) = opened(small).rank(["Does warfarin inhibit vitamin K?"], 10)
    expected = lucene("doe warfarin inhibit vitamin k", words)
    assert ranking.rows.tolist() == [0, 3, 1, 4]
    assert ranking.scores.dtype == np.float32
    assert ranking.rows.dtype == np.int64
    np.testing.assert_allclose(ranking.scores, [expected[row] for row in ranking.rows], rtol=1e-5)


def test_one_letter_words_count(small: Path) -> None:
    b, d = opened(small).rank(["hepatitis B", "what is D"], 10)
    assert b.rows.tolist() == [2]
    assert d.rows.tolist() == [1, 4]


def test_equal_scores_come_in_the_order_of_rows_also_at_the_cut(small: Path) -> None:
    (one,), (two,) = opened(small).rank(["bones"], 1), opened(small).rank(["bones"], 2)
    assert (one.rows.tolist(), two.rows.tolist()) == ([1], [1, 4])
    assert two.scores[0] == two.scores[1]


@pytest.mark.parametrize("query", ["zebra", "the of and", "?!", "骨", "   "])
def test_a_query_without_a_known_word_finds_nothing(small: Path, query: str) -> None:
    ranking, other = opened(small).rank([query, "liver"], 3)
    assert (ranking.rows.shape, ranking.scores.shape) == ((0,), (0,))
    assert (ranking.rows.dtype, ranking.scores.dtype) == (np.int64, np.float32)
    assert other.rows.tolist() == [2]


def test_passages_without_any_of_the_words_are_not_found(small: Path) -> None:
    (ranking,) = opened(small).rank(["liver"], 100)
    assert ranking.rows.tolist() == [2]


def test_the_order_and_case_of_words_do_not_matter(small: Path) -> None:
    first, second = opened(small).rank(["Vitamin K warfarin bleeding", "WARFARIN bleeding k VITAMIN"], 5)
    assert first.rows.tolist() == second.rows.tolist()
    assert first.scores.tobytes() == second.scores.tobytes()


def test_k_below_one_is_refused(small: Path) -> None:
    with pytest.raises(QueryError, match="k is 0"):
        opened(small).rank(["liver"], 0)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), max_size=30), st.integers(1, 40))
def test_the_best_are_those_of_a_full_sort(scores: list[float], k: int) -> None:
    ranking = best(np.array(scores, dtype=np.float32), k)
    expected = sorted((row for row, score in enumerate(scores) if score > 0), key=lambda row: (-scores[row], row))[:k]
    assert ranking.rows.tolist() == expected
    assert ranking.scores.tolist() == [scores[row] for row in expected]


def test_the_same_index_gives_the_same_bytes(copy: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (copy / FOLDER).iterdir()}

    before = contents()
    assert add_bm25(copy).digest == opened(copy).digest
    assert contents() == before


def test_the_scores_are_mapped_and_not_read(small: Path) -> None:
    assert isinstance(opened(small)._index.scores["data"], np.memmap)


# ---- what does not belong together, or is damaged --------------------------------------------------------------------


def test_an_index_without_words_names_the_command(built: Path) -> None:
    with pytest.raises(IndexMismatchError, match=f"index add-bm25 {built}"):
        opened(built)


def test_the_words_of_another_index_are_refused(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    build_index([Passage(id="1", text=text) for text in TEXTS[:1]], FakeEncoder(), other, cleaner=Cleaner(KEEP_ALL))
    shutil.copytree(small / FOLDER, other / FOLDER)
    with pytest.raises(IndexMismatchError, match=r"base: .* add-bm25 .* again"):
        opened(other)
    add_bm25(other)
    assert opened(other).rank(["warfarin"], 1)[0].rows.tolist() == [0]


def test_other_rules_than_ours_are_refused_by_name(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = bm25.metadata.version
    monkeypatch.setattr(bm25.metadata, "version", lambda name: "9.9" if name == "PyStemmer" else installed(name))
    with pytest.raises(IndexMismatchError, match=r"stemmer: .*here 'snowball english, PyStemmer 9\.9'"):
        opened(copy)


def names() -> list[str]:
    return [
        "data.csc.index.npy",
        "indices.csc.index.npy",
        "indptr.csc.index.npy",
        "vocab.index.json",
        "params.index.json",
        DESCRIPTION_FILE,
    ]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.write_bytes(content)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_file_is_named(copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    path = copy / FOLDER / name
    assert {entry.name for entry in path.parent.iterdir()} == set(names())
    before = path.read_bytes()
    damage(path)
    if name == DESCRIPTION_FILE and damage is truncate:
        assert before.endswith(b"\n")  # nothing but the last line's end is lost
        opened(copy)
        return
    with pytest.raises(IndexCorruptError, match=name):
        opened(copy)


def test_large_files_are_hashed_on_request(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "ALWAYS_VERIFIED_BYTES", 0)
    path = copy / FOLDER / "data.csc.index.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    opened(copy)
    with pytest.raises(IndexCorruptError, match=r"data\.csc\.index\.npy: its contents"):
        opened(copy, verify=True)


def test_a_changed_description_is_another_digest(copy: Path) -> None:
    before = opened(copy).digest
    path = copy / FOLDER / DESCRIPTION_FILE
    content = json.loads(path.read_bytes())
    content["library"] = "bm25s 0"
    path.write_text(json.dumps(content))
    assert opened(copy).digest != before


def test_a_corpus_without_words_cannot_be_added(tmp_path: Path) -> None:
    build_index([Passage(id="1", text="…")], FakeEncoder(), tmp_path / "index", cleaner=Cleaner(KEEP_ALL))
    with pytest.raises(BuildError, match="no passage has a word"):
        add_bm25(tmp_path / "index")
    assert not list((tmp_path / "index").glob("*bm25*/"))


def test_what_a_killed_run_left_behind_is_cleared(copy: Path) -> None:
    rest = copy / f".{FOLDER}.building"
    rest.mkdir()
    (rest / "data.csc.index.npy").write_bytes(b"half")
    add_bm25(copy)
    opened(copy)
    assert not rest.exists()


def test_progress_reaches_the_end(copy: Path) -> None:
    told = list[tuple[int, int]]()
    add_bm25(copy, lambda done, total: told.append((done, total)))
    assert told == [(5, 5)]


# ---- the starter corpus ----------------------------------------------------------------------------------------------


def test_a_passage_is_found_by_its_title(tmp_path: Path) -> None:
    folder = tmp_path / "starter"
    passages = list(read("starter"))
    build_index(passages, FakeEncoder(), folder, cleaner=Cleaner(KEEP_ALL))
    add_bm25(folder)
    rankings = opened(folder).rank([passage.title for passage in passages], 3)
    found = [row in ranking.rows for row, ranking in enumerate(rankings)]
    assert sum(found) >= 0.97 * len(passages)
