from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval_fakes import passages

from retrieval.passage import IndexCorruptError, Passage, RowError
from retrieval.textstore import OFFSETS_FILE, PASSAGES_FILE, TextStore, TextStoreWriter, passage_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TextStoreWriter(tmp_path) as store:
        assert [store.append(passage) for passage in passages(5)] == [0, 1, 2, 3, 4]
    return tmp_path


def test_rows_come_back(folder: Path) -> None:
    with TextStore(folder) as store:
        assert [store.get(row) for row in range(len(store))] == list(passages(5))
        assert store.get(np.int64(3)).id == "p3"
    assert np.load(folder / OFFSETS_FILE).dtype == np.int64


@pytest.mark.parametrize("row", [-1, 5, -5, 10**12])
def test_rows_never_wrap(folder: Path, row: int) -> None:
    with TextStore(folder) as store, pytest.raises(RowError, match=rf"row {row} is not in .* rows 0 to 4"):
        store.get(row)


def test_a_closed_store_reads_nothing(folder: Path) -> None:
    store = TextStore(folder)
    store.close()
    store.close()
    with pytest.raises(RowError, match="closed"):
        store.get(0)


def test_damage_is_named(folder: Path) -> None:
    content = (folder / PASSAGES_FILE).read_bytes()
    (folder / PASSAGES_FILE).write_bytes(b"x" + content[1:])
    with TextStore(folder) as store, pytest.raises(IndexCorruptError, match=r"passages\.jsonl, row 0: not a passage"):
        store.get(0)
    (folder / PASSAGES_FILE).write_bytes(content[:-1])
    with pytest.raises(IndexCorruptError, match=r"passages\.jsonl: \d+ bytes"):
        TextStore(folder)
    (folder / PASSAGES_FILE).unlink()
    with pytest.raises(IndexCorruptError, match=r"passages\.jsonl: cannot be opened"):
        TextStore(folder)


@pytest.mark.parametrize(
    "offsets",
    [
        np.array([1, 2], dtype=np.int64),
        np.array([0, 9, 5], dtype=np.int64),
        np.array([0, 9], dtype=np.int32),
        np.array([], dtype=np.int64),
        np.array([[0, 1]], dtype=np.int64),
    ],
)
def test_offsets_that_cannot_be(folder: Path, offsets: np.ndarray) -> None:
    np.save(folder / OFFSETS_FILE, offsets)
    with pytest.raises(IndexCorruptError, match=r"offsets\.npy"):
        TextStore(folder)


def test_truncated_and_missing_offsets(folder: Path) -> None:
    path = folder / OFFSETS_FILE
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(IndexCorruptError, match=r"offsets\.npy: not a readable array"):
        TextStore(folder)
    path.unlink()
    with pytest.raises(IndexCorruptError, match=r"offsets\.npy: not a readable array"):
        TextStore(folder)


def test_what_a_failed_writer_leaves_cannot_be_opened(tmp_path: Path) -> None:
    def broken() -> Iterator[Passage]:
        yield from passages(3)
        raise ZeroDivisionError

    def write() -> None:
        with TextStoreWriter(tmp_path) as store:
            for passage in broken():
                store.append(passage)

    with pytest.raises(ZeroDivisionError):
        write()
    with pytest.raises(IndexCorruptError, match=r"offsets\.npy"):
        TextStore(tmp_path)


def test_a_row_whose_offsets_cannot_be_is_refused_when_it_is_read(folder: Path) -> None:
    offsets = np.load(folder / OFFSETS_FILE)
    offsets[2] = offsets[4]
    np.save(folder / OFFSETS_FILE, offsets)
    with TextStore(folder) as store:
        assert store.get(0).id == "p0"
        with pytest.raises(IndexCorruptError, match=r"passages\.jsonl, row 1: not a passage"):
            store.get(1)
        with pytest.raises(IndexCorruptError, match=r"offsets\.npy, row 2: bytes \d+ to \d+"):
            store.get(2)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)


@given(st.lists(st.builds(Passage, id=TEXTS, title=TEXTS, text=TEXTS, corpus=TEXTS), max_size=30), st.data())
def test_any_passages_come_back_by_row(written: list[Passage], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        with TextStoreWriter(Path(name)) as writer:
            assert [writer.append(passage) for passage in written] == list(range(len(written)))
        with TextStore(Path(name)) as store:
            assert len(store) == len(written)
            rows = data.draw(st.lists(st.integers(0, len(written) - 1))) if written else []
            assert store.get_many(rows) == [written[row] for row in rows]
        saved = np.load(Path(name) / OFFSETS_FILE)  # numpy's own reader agrees about the header
        assert (saved.dtype, saved.shape) == (np.int64, (len(written) + 1,))


@given(TEXTS, TEXTS)
def test_any_text_is_one_line_and_survives(text: str, title: str) -> None:
    passage = Passage(id="x", text=text, title=title)
    line = passage_line(passage)
    assert line.count(b"\n") == 1
    assert Passage.model_validate_json(line) == passage
