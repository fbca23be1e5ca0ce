"""A build is stopped between each two steps of putting an index in place; the same command then ends as if it never was."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder, embed, passages

from retrieval import workspace
from retrieval.build import build_index, build_rank, finish_index
from retrieval.manifest import Manifest
from retrieval.passage import BuildError
from retrieval.ready_vectors import build_from_vectors
from retrieval.workspace import Workspace

ROWS = 20


class Stopped(BaseException):
    """Stands for a kill: nothing catches it."""


class Steps:
    """Lets so many steps of a publication be done, and stops before the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: float = float("inf")
        self._between: Callable[[], None] = lambda: None
        publish = Workspace.publish

        def counting(space: Workspace, *rest: Any) -> None:
            self._active = True
            try:
                publish(space, *rest)
            finally:
                self._active = False

        self._active = False
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody pulls the plug here
        monkeypatch.setattr(Workspace, "publish", counting)
        for owner, name in (
            (Path, "rename"), (Path, "replace"), (Path, "unlink"), (Path, "write_text"), (workspace, "_exchanged"),
            (os, "rmdir"), (os, "unlink"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._active:
                self._between()
                self._left -= 1
                if self._left < 0:
                    raise Stopped
            return step(*arguments, **options)

        return counted

    def stop_after(self, count: float, between: Callable[[], None] = lambda: None) -> None:
        self._left, self._between = count, between


def encoded(target: Path, rows: int = ROWS, **options: Any) -> Manifest:
    return build_index(passages(rows), FakeEncoder(), target, shard_rows=16, **options)


def given(target: Path, rows: int = ROWS, **options: Any) -> Manifest:
    found = list(passages(rows))
    vectors = np.stack([embed(f"{passage.title} {passage.text}") for passage in found])
    return build_from_vectors([(found, vectors)], SPEC, target, shard_rows=16, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("build", "exchange", "replaced"),
    [
        (encoded, True, "nothing"),
        (encoded, True, "another"),
        (encoded, True, "the same, damaged"),
        (encoded, False, "another"),
        (encoded, False, "the same, damaged"),
        (given, True, "another"),
        (given, False, "nothing"),
    ],
)
def test_stopped_between_any_two_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[..., Manifest],
    exchange: bool,
    replaced: str,
) -> None:
    expected = build(tmp_path / "unbroken")
    whole, target = contents(tmp_path / "unbroken"), tmp_path / "there" / "index"
    if not exchange:
        monkeypatch.setattr(workspace, "_exchanged", lambda one, other: False)
    steps = Steps(monkeypatch)

    def there() -> None:
        """What readers find is whole, at any time."""
        if replaced == "another" and exchange:
            assert Manifest.load(target).rows in (7, ROWS)

    for count in itertools.count():
        shutil.rmtree(target.parent, ignore_errors=True)
        steps.stop_after(float("inf"))
        if replaced != "nothing":
            build(target, 7 if replaced == "another" else ROWS)
        if replaced == "the same, damaged":
            (target / "vectors" / "00000.npy").write_bytes(b"")
        options = {"overwrite": True} if replaced != "nothing" else {}
        steps.stop_after(count, there)
        try:
            build(target, **options)
        except Stopped:
            there()
            steps.stop_after(float("inf"), there)
            assert build(target, **options) == expected
        else:
            assert count > 6  # it was stopped at all of its steps
            break
        assert contents(target) == whole, count
        assert sorted(path.name for path in target.parent.iterdir()) == [".index.lock", "index"]


def test_what_a_stopped_build_left_in_place_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, target = Steps(monkeypatch), tmp_path / "index"

    def stopped() -> None:
        """Its record is written, nothing else is done."""
        shutil.rmtree(target, ignore_errors=True)
        for count in itertools.count():
            steps.stop_after(count)
            with pytest.raises(Stopped):
                encoded(target)
            steps.stop_after(float("inf"))
            if (tmp_path / ".index.published").exists():
                return

    stopped()
    with pytest.raises(BuildError, match="exists: a build of other passages"):
        encoded(target, 7)
    assert Manifest.load(target).rows == ROWS
    assert encoded(target, 7, overwrite=True).rows == 7
    stopped()
    with pytest.raises(BuildError, match="exists; choose another"):
        encoded(target, dtype="float16")
    stopped()
    assert encoded(target, fresh=True).rows == ROWS
    stopped()
    assert encoded(target, fresh=True, overwrite=True).rows == ROWS
    stopped()
    assert finish_index(target).rows == ROWS
    stopped()
    assert build_rank(passages(ROWS), FakeEncoder(), target, 0, 2, shard_rows=16) == Manifest.load(target)
    stopped()
    (tmp_path / ".index.building" / "index" / "vectors" / "00000.npy").write_bytes(b"")
    assert encoded(target, overwrite=True).rows == ROWS
    Manifest.load(target).check_files(target)
    stopped()
    shutil.rmtree(tmp_path / ".index.building")  # by hand, before it was renamed
    assert encoded(target).rows == ROWS
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock", "index"]
