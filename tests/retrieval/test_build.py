import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder, passages

from retrieval.build import build_index, build_rank, finish_index
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.encoder import Vectors
from retrieval.encoder_spec import ModelIdentity
from retrieval.manifest import Manifest, StoredType
from retrieval.passage import BuildError, Passage, ShardsMissingError, VectorError
from retrieval.progress import Progress
from retrieval.shards import open_shards
from retrieval.textstore import TextStore

FILES = ["manifest.json", "offsets.npy", "passages.jsonl", "vectors/00000.npy"]


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class StoppingEncoder(FakeEncoder):
    """Encodes a number of shards (of one block each), and then no more."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self.left = shards

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("out of memory")
        return super().encode_passages(passages)


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
    manifest = build_index(found, encoder, tmp_path / "index", cleaner=Cleaner(KEEP_ALL))
    assert {reason: count for reason, count in manifest.dropped.items() if count} == {"empty": 1, "duplicate": 2}
    assert manifest.cleaning == KEEP_ALL.model_dump(mode="json")
    assert (manifest.corpus.passages, manifest.corpus.names, manifest.rows) == (6, ("", "other"), 3)
    with TextStore(tmp_path / "index") as texts:
        assert [texts.get(row).text for row in range(3)] == ["alpha", "beta", "gamma"]
    manifest.check_corpus(found)


def test_progress_counts_what_earlier_runs_have_done(tmp_path: Path, encoder: FakeEncoder) -> None:
    reports: list[Progress] = []
    build_index(passages(300), encoder, tmp_path / "index", shard_rows=100, on_progress=reports.append)
    assert [(report.rows, report.total) for report in reports] == [(100, 300), (200, 300), (300, 300)]
    assert reports[0].seconds_left > reports[-1].seconds_left == 0

    with pytest.raises(RuntimeError, match="out of memory"):
        build_index(passages(300), StoppingEncoder(shards=2), tmp_path / "again", shard_rows=100)
    reports.clear()
    build_index(passages(300), encoder, tmp_path / "again", shard_rows=100, on_progress=reports.append)
    assert [(report.rows, report.total) for report in reports] == [(300, 300)]


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


def test_an_encoder_that_breaks_leaves_the_target_alone(tmp_path: Path, built: Path) -> None:
    target = tmp_path / "index"
    wrong = FakeEncoder(SPEC.model_copy(update={"dim": 9}))
    for encoder, error in ((StoppingEncoder(0), "out of memory"), (wrong, r"expected vectors \[300, 9\]")):
        with pytest.raises((RuntimeError, BuildError), match=error):
            build_index(passages(), encoder, target, fresh=True)
        assert not target.exists()
    build_index(passages(), FakeEncoder(), target, fresh=True)
    assert contents(target) == contents(built)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".index.lock", "index"]


def test_a_build_goes_on_where_it_was_interrupted(tmp_path: Path, encoder: FakeEncoder) -> None:
    build_index(passages(), encoder, tmp_path / "unbroken", shard_rows=70)
    target = tmp_path / "index"
    for shards in (1, 0, 2):
        with pytest.raises(RuntimeError, match="out of memory"):
            build_index(passages(), StoppingEncoder(shards), target, shard_rows=70)
    with pytest.raises(ShardsMissingError, match=r"2 of 5 shards .*\(vectors/00003\.npy, vectors/00004\.npy\)"):
        finish_index(target)
    build_index(passages(), StoppingEncoder(2), target, shard_rows=70)
    assert contents(target) == contents(tmp_path / "unbroken")
    assert len(Manifest.load(target).ranges) == 5
    with pytest.raises(BuildError, match="no unfinished build"):
        finish_index(target)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"passages": passages(299)}, r"corpus\.passages: it has 300, given was 299; corpus\.sha256"),
        ({"passages": reversed(list(passages()))}, r"corpus\.sha256"),
        ({"encoder": FakeEncoder(SPEC.model_copy(update={"pooling": "cls"}))}, r"build\.encoder: .*'cls'"),
        ({"dtype": "float16"}, r"build\.dtype: it has 'float32', given was 'float16'"),
        ({"shard_rows": 50}, r"build\.shard_rows: it has 70, given was 50"),
    ],
)
def test_an_unfinished_build_of_something_else_is_never_continued(
    tmp_path: Path, encoder: FakeEncoder, change: dict[str, Any], complaint: str
) -> None:
    target = tmp_path / "index"
    with pytest.raises(RuntimeError, match="out of memory"):
        build_index(passages(), StoppingEncoder(1), target, shard_rows=70)
    given: dict[str, Any] = {"passages": list(passages()), "encoder": encoder, "shard_rows": 70} | change
    given["passages"] = list(given["passages"])
    with pytest.raises(BuildError, match=rf"unfinished build of something else.*{complaint}"):
        build_index(out_folder=target, **given)
    build_index(passages(), StoppingEncoder(4), target, shard_rows=70)  # still there, and still going on
    with pytest.raises(RuntimeError, match="out of memory"):
        build_index(passages(), StoppingEncoder(1), target, shard_rows=70, overwrite=True)
    manifest = build_index(out_folder=target, fresh=True, overwrite=True, **given)
    manifest.check_corpus(given["passages"])


def test_another_arithmetic_is_another_build(tmp_path: Path, encoder: FakeEncoder) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        build_index(passages(), StoppingEncoder(1), tmp_path / "index", shard_rows=70)
    encoder.arithmetic = encoder.arithmetic.model_copy(update={"precision": "bfloat16"})
    with pytest.raises(BuildError, match=r"build\.arithmetic: .*'bfloat16'"):
        build_index(passages(), encoder, tmp_path / "index", shard_rows=70)


def test_the_work_of_another_release_is_never_thrown_away_unasked(tmp_path: Path, encoder: FakeEncoder) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        build_index(passages(), StoppingEncoder(1), tmp_path / "index", shard_rows=70)
    plan = tmp_path / ".index.building" / "plan.json"
    plan.write_text("{}")
    with pytest.raises(BuildError, match=r"plan\.json is not a plan that this release reads"):
        build_index(passages(), encoder, tmp_path / "index", shard_rows=70)
    assert (tmp_path / ".index.building" / "index" / "vectors" / "00000.npy").exists()
    build_index(passages(), encoder, tmp_path / "index", fresh=True)


def test_half_precision(tmp_path: Path, built: Path, encoder: FakeEncoder) -> None:
    manifest = build_index(passages(), encoder, tmp_path / "index", dtype="float16")
    [half], [full] = open_shards(tmp_path / "index", manifest), open_shards(built, Manifest.load(built))
    assert (half.dtype, full.dtype, manifest.dtype) == (np.float16, np.float32, "float16")
    np.testing.assert_array_equal(half, full)  # small integers


@pytest.mark.parametrize(
    ("value", "dtype", "complaint"),
    [
        (np.nan, "float32", "row 0 has NaN or infinity"),
        (np.inf, "float16", "row 0 has NaN or infinity"),
        (70_000, "float16", "row 0 has a number too large for float16"),
    ],
)
def test_vectors_that_cannot_be_stored_are_never_indexed(
    tmp_path: Path, value: float, dtype: StoredType, complaint: str
) -> None:
    class ConstantEncoder(FakeEncoder):
        def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
            return np.full((len(passages), SPEC.dim), value, dtype=np.float32)

    with pytest.raises(VectorError, match=complaint):
        build_index(passages(3), ConstantEncoder(), tmp_path / "index", dtype=dtype)
    assert not (tmp_path / "index").exists()


# ---- several ranks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (0, 2, 1), (0, 3, 1, 2)])
def test_ranks_give_the_same_index_as_one_process(tmp_path: Path, encoder: FakeEncoder, order: tuple[int, ...]) -> None:
    build_index(passages(), encoder, tmp_path / "alone", shard_rows=40)
    target, world = tmp_path / "index", len(order)
    for rank in order[:-1]:
        assert build_rank(passages(), encoder, target, rank, world, shard_rows=40) is None
    with pytest.raises(ShardsMissingError, match=r"vectors/0000"):
        finish_index(target)
    manifest = build_rank(passages(), encoder, target, order[-1], world, shard_rows=40)
    assert manifest == Manifest.load(target)
    assert contents(target) == contents(tmp_path / "alone")


def test_ranks_at_the_same_time(tmp_path: Path, encoder: FakeEncoder) -> None:
    build_index(passages(), encoder, tmp_path / "alone", shard_rows=20)
    target = tmp_path / "index"

    def work(rank: int) -> Manifest | None:
        return build_rank(passages(), FakeEncoder(), target, rank, 3, shard_rows=20)

    with ThreadPoolExecutor(3) as pool:
        manifests = list(pool.map(work, (2, 1, 0)))
    assert any(manifests)
    assert contents(target) == contents(tmp_path / "alone")


def test_no_rank_goes_on_with_the_texts_of_a_corpus_that_has_changed(
    tmp_path: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.build._PATIENCE_S", 0)
    target = tmp_path / "index"
    assert build_rank(passages(), encoder, target, 0, 2, shard_rows=100) is None
    with pytest.raises(RuntimeError, match="out of memory"):
        build_rank(passages(), StoppingEncoder(0), target, 1, 2, shard_rows=100)
    for _ in range(2):  # whoever comes first
        with pytest.raises(BuildError, match=r"rank 0 has not .* seen that they are still those"):
            build_rank(passages(299), encoder, target, 1, 2, shard_rows=100)
        with pytest.raises(BuildError, match=r"unfinished build of something else .*corpus\.passages"):
            build_rank(passages(299), encoder, target, 0, 2, shard_rows=100)
    assert not target.exists()
    assert build_rank(passages(), encoder, target, 0, 2, shard_rows=100) is None
    manifest = build_rank(passages(), encoder, target, 1, 2, shard_rows=100)
    assert manifest
    manifest.check_corpus(passages())


def test_a_ticket_that_was_not_used_is_void_once_rank_0_refuses(
    tmp_path: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.build._PATIENCE_S", 0)
    target = tmp_path / "index"
    build_rank(passages(), encoder, target, 0, 2, shard_rows=100)
    with pytest.raises(BuildError, match="something else"):
        build_rank(passages(299), encoder, target, 0, 2, shard_rows=100)
    with pytest.raises(BuildError, match="rank 0 has not"):
        build_rank(passages(299), encoder, target, 1, 2, shard_rows=100)


def test_a_rank_may_begin_again_while_rank_0_is_at_work(
    tmp_path: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.build._PATIENCE_S", 0)
    target, answers = tmp_path / "index", list[Manifest | None]()

    class Meanwhile(FakeEncoder):
        """Rank 0, during whose work rank 1 fails, and is started again."""

        def encode_passages(self, found: Sequence[Passage]) -> Vectors:
            if not answers:
                with pytest.raises(RuntimeError, match="out of memory"):
                    build_rank(passages(), StoppingEncoder(0), target, 1, 2, shard_rows=100)
                answers.append(build_rank(passages(), encoder, target, 1, 2, shard_rows=100))
            return super().encode_passages(found)

    assert build_rank(passages(), Meanwhile(), target, 0, 2, shard_rows=100) == Manifest.load(target)
    assert answers == [None]


def test_a_rank_with_other_options_or_outside_the_world_is_refused(tmp_path: Path, encoder: FakeEncoder) -> None:
    build_rank(passages(), encoder, tmp_path / "index", 0, 2, shard_rows=40)
    with pytest.raises(BuildError, match=r"build\.dtype"):
        build_rank(passages(), encoder, tmp_path / "index", 1, 2, shard_rows=40, dtype="float16")
    for rank, world in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(BuildError, match="expected a rank"):
            build_rank(passages(), encoder, tmp_path / "index", rank, world)


# ---- killed ----------------------------------------------------------------------------------------------------------


def start(target: Path, *arguments: str) -> subprocess.Popen[bytes]:
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here)])}
    script = str(here / "build_until_killed.py")
    return subprocess.Popen([sys.executable, script, str(target), *arguments], env=environment)


def wait_for(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert child.poll() is None, "the build ended before it could be killed"
        assert time.monotonic() < deadline, "the build never got there"
        time.sleep(0.001)


def test_a_killed_build_changes_nothing_and_holds_off_others_while_it_lives(tmp_path: Path, built: Path) -> None:
    target = tmp_path / "index"
    build_index(passages(7), FakeEncoder(), target)
    child = start(target, "60")
    try:
        wait_for((tmp_path / ".index.building" / "plan.json").exists, child)
        with pytest.raises(BuildError, match="another process is building"):
            build_index(passages(), FakeEncoder(), target, overwrite=True, shard_rows=20)
        with pytest.raises(BuildError, match="another process is building"):
            build_index(passages(), FakeEncoder(), target, overwrite=True, fresh=True)
    finally:
        child.kill()
        child.wait()
    assert Manifest.load(target).rows == 7
    Manifest.load(target).check_files(target)
    build_index(passages(), FakeEncoder(), target, overwrite=True, fresh=True)
    assert contents(target) == contents(built)
    assert not (tmp_path / ".index.building").exists()


@pytest.mark.parametrize("seed", range(10))
def test_killed_at_a_random_moment_it_ends_with_the_same_bytes(tmp_path: Path, seed: int) -> None:
    build_index(passages(), FakeEncoder(), tmp_path / "unbroken", shard_rows=20)
    target = tmp_path / "index"
    child = start(target, "0.01")
    wait_for((tmp_path / ".index.lock").exists, child)
    time.sleep(random.Random(seed).random() * 0.35)  # the work takes about as long as this
    child.kill()
    child.wait()
    if target.exists():  # this moment came after the end
        assert contents(target) == contents(tmp_path / "unbroken")
        shutil.rmtree(target)
    build_index(passages(), FakeEncoder(), target, shard_rows=20)
    assert contents(target) == contents(tmp_path / "unbroken")
    assert not (tmp_path / ".index.building").exists()
