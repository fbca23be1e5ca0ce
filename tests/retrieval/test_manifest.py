import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from retrieval_fakes import SPEC, passages

from retrieval.clean import REASONS
from retrieval.encoder_spec import ModelIdentity
from retrieval.manifest import Manifest, differences
from retrieval.passage import IndexCorruptError, IndexMismatchError


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def test_a_manifest_survives_its_file(built: Path, tmp_path: Path) -> None:
    manifest = Manifest.load(built)
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert (tmp_path / "manifest.json").read_bytes() == (built / "manifest.json").read_bytes()
    assert manifest.corpus.names == ("c",)
    assert (manifest.corpus.passages, manifest.rows, manifest.dropped) == (300, 300, dict.fromkeys(REASONS, 0))


def test_the_digest_changes_with_any_field(built: Path) -> None:
    manifest = Manifest.load(built)
    others = [
        manifest.model_copy(update={"encoder": SPEC.model_copy(update={"query_max_tokens": 16})}),
        manifest.model_copy(update={"created_by": "someone else"}),
        manifest.model_copy(update={"corpus": manifest.corpus.model_copy(update={"sha256": "0" * 64})}),
    ]
    assert len({manifest.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pooling": "cls"}, r"encoder\.pooling: the index has 'mean', given was 'cls'"),
        ({"query_max_tokens": 512}, r"encoder\.query_max_tokens: the index has 32, given was 512"),
        ({"passage_max_tokens": 8}, r"encoder\.passage_max_tokens"),
        ({"normalize": True}, r"encoder\.normalize: the index has False, given was True"),
        ({"passage_format": "pair"}, r"encoder\.passage_format"),
        ({"dim": 8}, r"encoder\.dim"),
        (
            {"query_model": ModelIdentity(name="fake/query", digest="c" * 64)},
            r"encoder\.query_model\.digest: .*'c{64}'",
        ),
        ({"passage_model": ModelIdentity(name="fake/passage")}, r"encoder\.passage_model\.digest: .* given was ''"),
    ],
)
def test_another_encoder_is_refused(built: Path, change: dict[str, object], complaint: str) -> None:
    with pytest.raises(IndexMismatchError, match=complaint):
        Manifest.load(built).check_encoder(SPEC.model_copy(update=change))


def test_every_difference_is_named_and_labels_do_not_matter(built: Path) -> None:
    manifest = Manifest.load(built)
    renamed = ModelIdentity(name="mirror/query", revision="main", digest=SPEC.query_model.digest)
    manifest.check_encoder(SPEC.model_copy(update={"name": "other", "query_model": renamed}))
    with pytest.raises(IndexMismatchError, match=r"pooling.*; encoder\.normalize"):
        manifest.check_encoder(SPEC.model_copy(update={"pooling": "cls", "normalize": True}))


def test_another_corpus_is_refused(built: Path) -> None:
    manifest = Manifest.load(built)
    manifest.check_corpus(passages())
    with pytest.raises(IndexMismatchError, match=r"corpus\.passages: the index has 300, given was 299; corpus\.sha256"):
        manifest.check_corpus(passages(299))
    with pytest.raises(IndexMismatchError, match=r"corpus\.sha256"):
        manifest.check_corpus(reversed(list(passages())))


@pytest.mark.parametrize("name", ["vectors/00000.npy", "offsets.npy", "passages.jsonl"])
def test_damaged_files_are_named(folder: Path, name: str) -> None:
    manifest, path = Manifest.load(folder), folder / name
    whole = path.read_bytes()
    manifest.check_files(folder)

    path.write_bytes(whole[:-1])
    with pytest.raises(IndexCorruptError, match=rf"{name}: {len(whole) - 1} bytes, the manifest says {len(whole)}"):
        manifest.check_files(folder, verify=False)

    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(IndexCorruptError, match=rf"{name}: its contents do not match"):
        manifest.check_files(folder, verify=False)  # small: verified all the same

    path.unlink()
    with pytest.raises(IndexCorruptError, match=rf"{name}: cannot be read"):
        manifest.check_files(folder)


def test_contents_of_a_large_index_are_hashed_on_request(folder: Path) -> None:
    manifest, path = Manifest.load(folder), folder / "vectors/00000.npy"
    with path.open("r+b") as file:
        file.truncate(65 * 2**20)  # sparse: costs no disk
    entry = manifest.files["vectors/00000.npy"].model_copy(update={"size": 65 * 2**20})
    manifest = manifest.model_copy(update={"files": manifest.files | {"vectors/00000.npy": entry}})
    manifest.check_files(folder, verify=False)
    with pytest.raises(IndexCorruptError, match=r"vectors/00000\.npy: its contents do not match"):
        manifest.check_files(folder, verify=True)


def test_a_damaged_manifest_is_named(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    for damaged in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"digest": "", "manifest": {"format": 2}}'):
        path.write_bytes(damaged)
        with pytest.raises(IndexCorruptError, match=r"manifest\.json: not a manifest"):
            Manifest.load(folder)
    content["manifest"]["created_by"] = "forged"
    path.write_text(json.dumps(content))
    with pytest.raises(IndexCorruptError, match=r"manifest\.json: does not match its own digest"):
        Manifest.load(folder)
    content["manifest"]["format"] = 1
    path.write_text(json.dumps(content))
    with pytest.raises(IndexMismatchError, match="format: the index has 1, this release reads 2"):
        Manifest.load(folder)
    path.unlink()
    with pytest.raises(IndexCorruptError, match=r"manifest\.json: cannot be read .*is .* an index\?"):
        Manifest.load(folder)


def reseal(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of an index, with a digest that fits again."""
    fields = json.loads((folder / "manifest.json").read_bytes())["manifest"]
    change(fields)
    canonical = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"digest": digest, "manifest": fields}))


def renamed(name: str) -> Callable[[dict[str, Any]], object]:
    def change(fields: dict[str, Any]) -> None:
        fields["files"][name] = fields["files"].pop(fields["ranges"][0]["file"])
        fields["ranges"][0]["file"] = name

    return change


def cut(*borders: int) -> Callable[[dict[str, Any]], object]:
    """Ranges that go from border to border."""

    def change(fields: dict[str, Any]) -> None:
        pairs = list(pairwise(borders))
        fields["ranges"] = [
            fields["ranges"][0] | {"file": f"f{number}", "start": start, "stop": stop}
            for number, (start, stop) in enumerate(pairs)
        ]
        fields["files"] |= {f"f{number}": fields["files"]["offsets.npy"] for number in range(len(pairs))}

    return change


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields["files"].clear(),
        lambda fields: fields["files"].pop("vectors/00000.npy"),
        lambda fields: fields["files"].pop("passages.jsonl"),
        lambda fields: fields["files"].pop("offsets.npy"),
        *map(renamed, ["/etc/passwd", "../x", "vectors/../../x", "", ".", "a//b", "a\0b", "a\ud800b", "a\nb"]),
        *(cut(*borders) for borders in [(0, 0, 300), (0, 300, 300), (0, 300, 100, 300), (300, 0), (0, -1, 300)]),
        lambda fields: fields["ranges"].clear(),
        lambda fields: fields["dropped"].update(empty=-1, duplicate=1),
        lambda fields: fields["corpus"]["counts"].update(c=-300),
        *(
            lambda fields, longest=longest: fields["ranges"][0].update(longest=longest)
            for longest in (0.0, -1.0, float("inf"), float("nan"))
        ),
        lambda fields: fields["cleaning"].update(x=nested(900)),
        lambda fields: fields["cleaning"].update(x="\ud800"),
    ],
)
def test_a_manifest_that_means_nothing_is_refused_though_its_digest_fits(
    folder: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    reseal(folder, lambda fields: None)
    Manifest.load(folder)
    reseal(folder, change)
    with pytest.raises(IndexCorruptError, match=r"manifest\.json"):
        Manifest.load(folder)


def test_numbers_that_do_not_add_up_are_refused(built: Path) -> None:
    fields = Manifest.load(built).model_dump()
    with pytest.raises(ValidationError, match=r"corpus\.passages less dropped must be rows"):
        Manifest.model_validate(fields | {"dropped": {"empty": 1}})
    for ranges in (
        [],
        [{"file": "x", "start": 0, "stop": 299}],
        [{"file": "x", "start": 0, "stop": 100}, {"file": "y", "start": 101, "stop": 300}],
    ):
        with pytest.raises(ValidationError, match="ranges must cover the rows"):
            Manifest.model_validate(fields | {"ranges": ranges})


def test_a_field_that_only_one_side_has_is_a_difference() -> None:
    assert differences("build", {"a": 1, "b": None}, {"a": 1, "c": 2}, "it has") == (
        "build.b: it has None, given was nothing; build.c: it has nothing, given was 2"
    )
    assert differences("build", {"a": 1}, {"a": 1}, "it has") == ""
