"""The corpora that developers have beside the checkout. Their counts are facts about them: a change here is a change of rules."""

from pathlib import Path

import pytest

from retrieval.clean import Cleaner, CleaningOptions
from retrieval.passage import Passage
from retrieval.sources import read


@pytest.fixture(scope="session")
def corpora(repository: Path) -> dict[str, list[Passage]]:
    folder = repository.parent / "shared" / "data" / "corpora"
    if not folder.is_dir():
        pytest.skip("the corpora are not beside this checkout")
    return {name: list(read(str(folder / f"{name}.jsonl.gz"))) for name in ("medquad", "openstax_health")}


def test_every_passage_is_read(corpora: dict[str, list[Passage]]) -> None:
    assert {name: len(found) for name, found in corpora.items()} == {"medquad": 21_871, "openstax_health": 10_734}
    assert {passage.license for passage in corpora["openstax_health"]} == {
        "http://creativecommons.org/licenses/by/4.0/"
    }
    assert {passage.license for passage in corpora["medquad"]} == {""}


@pytest.mark.parametrize(("near", "rows"), [(False, 31_930), (True, 31_454)])
def test_what_is_left_out(corpora: dict[str, list[Passage]], near: bool, rows: int) -> None:
    if near:
        pytest.importorskip("rensa")
    cleaner = Cleaner(CleaningOptions(near_duplicates=near))
    kept = [passage for found in corpora.values() for passage in cleaner.kept(found)]
    counts = {reason: count for reason, count in cleaner.counts.items() if count}
    assert counts == {"too_short": 675} | ({"near_duplicate": 476} if near else {})
    assert len(kept) == rows


def test_text_reaches_the_index_unchanged(corpora: dict[str, list[Passage]]) -> None:
    found = [passage for passages in corpora.values() for passage in passages]
    by_id = {passage.id: passage for passage in found}
    changed = [p.id for p in Cleaner().kept(found) if p.text != by_id[p.id].text]
    assert len(changed) <= 1
