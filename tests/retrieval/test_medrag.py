import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from retrieval.passage import SourceError
from retrieval.sources import read
from retrieval.sources.medrag import PUBMED, medrag_passages


def pubmed_row(number: int, **fields: Any) -> dict[str, Any]:
    """A row of the documented shape."""
    title, content = f"Title {number}.", f"Abstract of article {number}."
    row = {"id": f"pubmed23n0001_{number}", "title": title, "content": content, "contents": f"{title} {content}"}
    return row | {"PMID": 1000 + number} | fields


def textbook_row(number: int) -> dict[str, Any]:
    title, content = "Anatomy_Gray", f"What is anatomy, part {number}?"
    return {"id": f"Anatomy_Gray_{number}", "title": title, "content": content, "contents": f"{title}. {content}"}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_a_folder_of_pubmed(tmp_path: Path) -> None:
    write(tmp_path / "chunk" / "pubmed23n10.jsonl", pubmed_row(3))
    write(tmp_path / "chunk" / "pubmed23n2.jsonl", pubmed_row(1), pubmed_row(2, content=""))
    write(tmp_path / "chunk" / "pubmed23n11.jsonl.gz", pubmed_row(4))
    found = list(read(f"medrag-pubmed:{tmp_path}"))
    assert [passage.id for passage in found] == [f"pubmed23n0001_{number}" for number in (1, 2, 3, 4)]
    first = found[0]
    assert (first.title, first.text) == (
        "Title 1.",
        "Abstract of article 1.",
    )  # not `contents`, which has the title too
    assert (first.source, first.corpus) == ("PubMed 1001", "medrag-pubmed")
    assert not found[1].text.strip()  # for the cleaner to count
    assert list(read(f"medrag-pubmed:{tmp_path / 'chunk'}")) == found


def test_a_folder_of_textbooks(tmp_path: Path) -> None:
    write(tmp_path / "chunk" / "Anatomy_Gray.jsonl", textbook_row(0), textbook_row(1))
    found = list(read(f"medrag-textbooks:{tmp_path}"))
    assert [(p.id, p.corpus) for p in found] == [(f"Anatomy_Gray_{n}", "medrag-textbooks") for n in (0, 1)]
    assert found[0].source == "MedRAG textbooks: Anatomy Gray"


def test_rows_as_the_hub_s_library_streams_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = write(tmp_path / "chunk" / "pubmed23n0001.jsonl", *map(pubmed_row, range(5)))
    rows = datasets.load_dataset("json", data_files=str(file), split="train", streaming=True)
    streamed = list(medrag_passages(((f"row {number}", row) for number, row in enumerate(rows)), PUBMED))
    assert streamed == list(read(f"medrag-pubmed:{tmp_path}"))


@pytest.mark.parametrize("place", ["hub", "hub@", "hub@main", "hub@" + "a" * 39, "hub@" + "A" * 40])
def test_the_hub_is_read_at_a_commit_only(place: str) -> None:
    with pytest.raises(SourceError, match=r"only at a pinned commit.*MedRAG/textbooks.*medrag-textbooks:hub@COMMIT"):
        read(f"medrag-textbooks:{place}")


def test_a_hub_that_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match=r"MedRAG/pubmed at 0{40} cannot be read from the hub"):
        list(read("medrag-pubmed:hub@" + "0" * 40))


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no chunk/"):
        list(read(f"medrag-pubmed:{tmp_path}"))
    with pytest.raises(SourceError, match="medrag-pubmed:FOLDER"):
        read("medrag-pubmed:")
    write(tmp_path / "chunk" / "a.jsonl", pubmed_row(1), pubmed_row(2, PMID="x"))
    with pytest.raises(SourceError, match=r"a\.jsonl, line 2, field PMID: expected a number, found 'x'"):
        list(read(f"medrag-pubmed:{tmp_path}"))
    write(tmp_path / "chunk" / "a.jsonl", {"id": "1", "title": "t"})
    with pytest.raises(SourceError, match=r"a\.jsonl, line 1, field text: missing"):
        list(read(f"medrag-textbooks:{tmp_path}"))
