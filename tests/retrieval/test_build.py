import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder, passages

from retrieval.build import build_index
from retrieval.encoder import Vectors
from retrieval.encoder_spec import ModelIdentity
from retrieval.manifest import Manifest
from retrieval.passage import BuildError, Passage, VectorError
from retrieval.textstore import TextStore

FILES = ["manifest.json", "offsets.npy", "passages.jsonl", "vectors/00000.npy"]


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class BrokenEncoder(FakeEncoder):
    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        raise RuntimeError("out of memory")


def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path, encoder: FakeEncoder) -> None:
    manifest = build_index(passages(), encoder, tmp_path / "deep" / "again")
    assert list(contents(built)) == FILES
    assert contents(tmp_path / "deep" / "again") == contents(built)
    assert manifest == Manifest.load(built)


def test_empty_and_duplicate_texts_are_dropped_and_counted(tmp_path: Path, encoder: FakeEncoder) -> None:
    found = [
        Passage(id="1", text="alpha"),
        Passage(id="2", text=" \n"),
        Passage(id="3", text="alpha", title="the first one stays"),
        Passage(id="4", text="beta"),
        Passage(id="5", text="alpha", corpus="other"),
        Passage(id="1", text="gamma", corpus="other"),
    ]
    manifest = build_index(found, encoder, tmp_path / "index")
    assert manifest.dropped == {"empty": 1, "duplicate": 2}
    assert (manifest.corpus.passages, manifest.corpus.names, manifest.rows) == (6, ("", "other"), 3)
    with TextStore(tmp_path / "index") as texts:
        assert [texts.get(row).text for row in range(3)] == ["alpha", "beta", "gamma"]
    manifest.check_corpus(found)


def test_progress_is_reported(tmp_path: Path, encoder: FakeEncoder) -> None:
    reports: list[tuple[int, int]] = []
    build_index(
        passages(300), encoder, tmp_path / "index", on_progress=lambda done, total: reports.append((done, total))
    )
    assert reports == [(128, 300), (256, 300), (300, 300)]


def test_an_existing_index_is_replaced_only_when_asked(tmp_path: Path, encoder: FakeEncoder) -> None:
    target = tmp_path / "index"
    build_index(passages(5), encoder, target)
    before = contents(target)
    with pytest.raises(BuildError, match="exists"):
        build_index(passages(6), encoder, target)
    assert contents(target) == before
    assert build_index(passages(6), encoder, target, overwrite=True).rows == 6
    assert Manifest.load(target).rows == 6
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".index.lock", "index"]


def test_a_folder_that_is_no_index_is_never_replaced(tmp_path: Path, encoder: FakeEncoder) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with pytest.raises(BuildError, match="is not an index"):
        build_index(passages(5), encoder, tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").exists()
    (tmp_path / "empty").mkdir()
    build_index(passages(5), encoder, tmp_path / "empty")


def broken_source() -> Iterator[Passage]:
    yield from passages(3)
    raise OSError("disk gone")


@pytest.mark.parametrize(
    ("source", "encoder", "error", "complaint"),
    [
        ([], FakeEncoder(), BuildError, "nothing to index"),
        ([Passage(id="1", text=" ")], FakeEncoder(), BuildError, "nothing to index: of 1 passages.*'empty': 1"),
        (
            [Passage(id="1", text="a"), Passage(id="1", text="b")],
            FakeEncoder(),
            BuildError,
            "two passages with the id '1'",
        ),
        (list(passages(3)), BrokenEncoder(), RuntimeError, "out of memory"),
        (list(passages(3)), FakeEncoder(SPEC.model_copy(update={"dim": 9})), BuildError, r"expected vectors \[3, 9\]"),
        (
            list(passages(3)),
            FakeEncoder(SPEC.model_copy(update={"query_model": ModelIdentity(name="x")})),
            BuildError,
            "not pinned",
        ),
        (broken_source(), FakeEncoder(), OSError, "disk gone"),
    ],
)
def test_a_failed_build_leaves_nothing(
    tmp_path: Path, source: list[Passage], encoder: FakeEncoder, error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        build_index(source, encoder, tmp_path / "index")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_vectors_that_are_not_finite_are_never_indexed(tmp_path: Path) -> None:
    class NanEncoder(FakeEncoder):
        def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
            return np.full((len(passages), SPEC.dim), np.nan, dtype=np.float32)

    with pytest.raises(VectorError, match="NaN"):
        build_index(passages(3), NanEncoder(), tmp_path / "index")


@pytest.fixture
def killed(tmp_path: Path, built: Path) -> Path:
    """A folder with a finished index of other passages, and what a killed rebuild of it leaves."""
    target, marker = tmp_path / "index", tmp_path / "marker"
    build_index(passages(7), FakeEncoder(), target)
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here)])}
    child = subprocess.Popen(
        [sys.executable, str(here / "build_until_killed.py"), str(target), str(marker)], env=environment
    )
    try:
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert child.poll() is None, "the build ended before it could be killed"
            assert time.monotonic() < deadline, "the build never got to its middle"
            time.sleep(0.01)
        with pytest.raises(BuildError, match="another process is building"):
            build_index(passages(), FakeEncoder(), target, overwrite=True)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    return target


def test_a_killed_build_changes_nothing_and_the_next_gives_the_same_bytes(killed: Path, built: Path) -> None:
    assert (killed.parent / ".index.building" / "passages.jsonl").exists()
    assert Manifest.load(killed).rows == 7
    Manifest.load(killed).check_files(killed)
    build_index(passages(), FakeEncoder(), killed, overwrite=True)
    assert contents(killed) == contents(built)
    assert not (killed.parent / ".index.building").exists()


def test_an_index_set_aside_by_a_killed_build_comes_back(built: Path, tmp_path: Path, encoder: FakeEncoder) -> None:
    shutil.copytree(built, tmp_path / ".index.retired")
    with pytest.raises(BuildError, match="exists"):
        build_index(passages(3), encoder, tmp_path / "index")
    assert contents(tmp_path / "index") == contents(built)
