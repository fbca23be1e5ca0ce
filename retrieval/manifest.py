"""What an index is made of: the proof that it is queried with what it was built with.

`manifest.json` holds the manifest and its digest, so that damage to the manifest itself is noticed too. It has no times
and no host names: building the same index twice gives the same bytes.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from retrieval.encoder_spec import EncoderSpec
from retrieval.passage import IndexCorruptError, IndexMismatchError, Passage
from retrieval.textstore import passage_line

MANIFEST_FILE = "manifest.json"
FORMAT = 1  # of the folder as a whole; `Manifest.format`
# Hashing this much takes well under a second, so below it every opening checks every byte.
ALWAYS_VERIFIED_BYTES = 64 * 2**20

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Corpus(_Part):
    """The passages that an index was built from, before any was dropped."""

    names: tuple[str, ...]
    passages: Annotated[int, Field(ge=0)]
    sha256: Annotated[Sha256, Field(description="Over the passages' canonical lines, in order.")]


class FileEntry(_Part):
    """One file of the index."""

    size: Annotated[int, Field(ge=0, description="Bytes.")]
    sha256: Sha256


class RowRange(_Part):
    """Which rows a vector file holds: `start` up to and without `stop`."""

    file: str
    start: Annotated[int, Field(ge=0)]
    stop: Annotated[int, Field(ge=1)]


class Manifest(_Part):
    """The contract of an index."""

    format: Literal[1] = 1
    created_by: Annotated[str, Field(description="The medverify release that built the index.")]
    corpus: Corpus
    dropped: Annotated[dict[str, int], Field(description="Passages left out, per reason.")]
    encoder: EncoderSpec
    dtype: Literal["float32"] = "float32"
    metric: Literal["ip"] = "ip"
    rows: Annotated[int, Field(ge=1)]
    ranges: tuple[RowRange, ...]
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.corpus.passages - sum(self.dropped.values()) != self.rows:
            raise ValueError("corpus.passages less dropped must be rows")
        borders = [0, *(part.stop for part in self.ranges)]
        if [part.start for part in self.ranges] != borders[:-1] or borders[-1] != self.rows:
            raise ValueError("ranges must cover the rows without gap or overlap")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest's canonical JSON."""
        return hashlib.sha256(_canonical(self.model_dump(mode="json"))).hexdigest()

    def save(self, folder: Path) -> None:
        """Write `manifest.json` into `folder`."""
        content = {"digest": self.digest, "manifest": self.model_dump(mode="json")}
        (folder / MANIFEST_FILE).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `manifest.json` from `folder`.

        Raises:
            IndexCorruptError: missing or damaged.
            IndexMismatchError: written in a format that this release does not read.
        """
        path = folder / MANIFEST_FILE
        try:
            content = json.loads(path.read_bytes())
            recorded, fields = content["digest"], content["manifest"]
            version = fields["format"]
        except OSError as error:
            raise IndexCorruptError(f"{path}: cannot be read ({error.strerror}); is {folder} an index?") from error
        except (ValueError, KeyError, TypeError) as error:
            raise IndexCorruptError(f"{path}: not a manifest: {error!r}; rebuild the index") from error
        if version != FORMAT:
            raise IndexMismatchError(
                f"{path}: format: the index has {version!r}, this release reads {FORMAT}; rebuild it"
            )
        try:
            manifest = cls.model_validate(fields)
        except ValidationError as error:
            raise IndexCorruptError(f"{path}: not a manifest: {error}") from error
        if manifest.digest != recorded:
            raise IndexCorruptError(f"{path}: does not match its own digest; rebuild the index")
        return manifest

    def check_encoder(self, spec: EncoderSpec) -> None:
        """Refuse an encoder that is not the one that built the index.

        Names and revisions are labels and may differ: the digests of the weights decide.

        Raises:
            IndexMismatchError: names each field that differs, what the index has and what was given.
        """
        _refuse_differences("encoder", _recipe(self.encoder), _recipe(spec))

    def check_corpus(self, passages: Iterable[Passage]) -> None:
        """Refuse an index that was built from other passages than these, or from the same in another order.

        Raises:
            IndexMismatchError: names each field that differs, what the index has and what was given.
        """
        summary = CorpusSummary()
        for passage in passages:
            summary.add(passage)
        _refuse_differences("corpus", self.corpus.model_dump(), summary.corpus().model_dump())

    def check_files(self, folder: Path, *, verify: bool = True) -> None:
        """Check each file's size and, if `verify` or if the index is small, its SHA-256.

        Raises:
            IndexCorruptError: names the first file that is missing, has another size, or has other contents.
        """
        hashed = verify or sum(entry.size for entry in self.files.values()) < ALWAYS_VERIFIED_BYTES
        for name, entry in self.files.items():
            path = folder / name
            try:
                size = path.stat().st_size
                sha256 = _file_sha256(path) if hashed and size == entry.size else entry.sha256
            except OSError as error:
                raise IndexCorruptError(f"{path}: cannot be read ({error.strerror}); rebuild the index") from error
            if size != entry.size:
                raise IndexCorruptError(f"{path}: {size} bytes, the manifest says {entry.size}; rebuild the index")
            if sha256 != entry.sha256:
                raise IndexCorruptError(f"{path}: its contents do not match the manifest; rebuild the index")


class CorpusSummary:
    """Sums up a corpus passage by passage."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._count = 0
        self._hash = hashlib.sha256()

    def add(self, passage: Passage) -> None:
        """Take one more passage into account."""
        self._names[passage.corpus] = None
        self._count += 1
        self._hash.update(passage_line(passage))

    def corpus(self) -> Corpus:
        """The summary so far; names in the order of their first passage."""
        return Corpus(names=tuple(self._names), passages=self._count, sha256=self._hash.hexdigest())


def file_entry(path: Path) -> FileEntry:
    """Describe a finished file of an index."""
    return FileEntry(size=path.stat().st_size, sha256=_file_sha256(path))


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _canonical(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _recipe(spec: EncoderSpec) -> dict[str, Any]:
    """What decides the vectors, flat: every field but the labels, and each model's digest for the model."""
    fields = spec.model_dump(exclude={"name", "query_model", "passage_model"})
    digests = {"query_model.digest": spec.query_model.digest, "passage_model.digest": spec.passage_model.digest}
    return fields | digests


def _refuse_differences(part: str, ours: dict[str, Any], given: dict[str, Any]) -> None:
    differing = [
        f"{part}.{field}: the index has {ours[field]!r}, given was {given[field]!r}"
        for field in ours
        if ours[field] != given[field]
    ]
    if differing:
        raise IndexMismatchError("; ".join(differing))
