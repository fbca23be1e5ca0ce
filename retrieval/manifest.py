"""What an index is made of: the proof that it is queried with what it was built with.

`manifest.json` holds the manifest and its digest, so that damage to the manifest itself is noticed too. It has no times
and no host names: building the same index twice gives the same bytes.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from configs import strict_json
from configs.digest import sha256_file
from retrieval.encoder_spec import Arithmetic, EncoderSpec
from retrieval.passage import IndexCorruptError, IndexMismatchError, Passage
from retrieval.textstore import OFFSETS_FILE, PASSAGES_FILE, passage_line

MANIFEST_FILE = "manifest.json"
FORMAT = 2  # of the folder as a whole; `Manifest.format`
# Hashing this much takes well under a second, so below it every opening checks every byte.
ALWAYS_VERIFIED_BYTES = 64 * 2**20

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
StoredType = Literal["float32", "float16"]
Count = Annotated[int, Field(ge=0)]
Option = bool | int | float | str | None


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or str(path) != name or not name.isprintable():
        raise ValueError("expected the name of a file inside the folder of the index")
    return name


FileName = Annotated[str, Field(min_length=1), AfterValidator(_inside)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Corpus(_Part):
    """The passages that an index was built from, before any was cleaned or dropped."""

    counts: Annotated[dict[str, Count], Field(description="Passages of each corpus, in the order of their first.")]
    passages: Annotated[int, Field(ge=0)]
    sha256: Annotated[Sha256, Field(description="Over the passages' canonical lines, in order.")]

    @property
    def names(self) -> tuple[str, ...]:
        """The corpora, in the order of their first passage."""
        return tuple(self.counts)


class FileEntry(_Part):
    """One file of the index."""

    size: Annotated[int, Field(ge=0, description="Bytes.")]
    sha256: Sha256

    def check(self, path: Path, *, hashed: bool, record: str = "the manifest", mend: str = "rebuild the index") -> None:
        """Check a file's size and, if `hashed`, its SHA-256.

        Args:
            record: what the entry stands in, for the message.
            mend: what to do about a damaged file.

        Raises:
            IndexCorruptError: names the file, and what is wrong with it.
        """
        try:
            size = path.stat().st_size
            sha256 = sha256_file(path) if hashed and size == self.size else self.sha256
        except OSError as error:
            raise IndexCorruptError(f"{path}: cannot be read ({error.strerror}); {mend}") from error
        if size != self.size:
            raise IndexCorruptError(f"{path}: {size} bytes, {record} says {self.size}; {mend}")
        if sha256 != self.sha256:
            raise IndexCorruptError(f"{path}: its contents do not match {record}; {mend}")


class RowRange(_Part):
    """Which rows a vector file holds: `start` up to and without `stop`."""

    file: FileName
    start: Annotated[int, Field(ge=0)]
    stop: Annotated[int, Field(ge=1)]
    longest: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Length of the longest vector as stored; null: not written yet."),
    ] = None


class Parity(_Part):
    """How near vectors that were given ready are, in a sample, to freshly encoded ones."""

    seed: int
    ids: Annotated[tuple[str, ...], Field(description="The sample.")]
    min_cosine: Annotated[float, Field(description="The lowest cosine of a ready vector with the fresh one.")]
    max_difference: Annotated[
        float, Field(description="The greatest length of a difference, as a fraction of the fresh vector's length.")
    ]


class Manifest(_Part):
    """The contract of an index."""

    format: Literal[2] = 2
    created_by: Annotated[str, Field(description="The medverify release that built the index.")]
    corpus: Corpus
    cleaning: Annotated[dict[str, Option | list[Option]], Field(description="Options of the cleaning.")]
    dropped: Annotated[dict[str, Count], Field(description="Passages left out, per reason.")]
    encoder: EncoderSpec
    arithmetic: Annotated[
        Arithmetic | None, Field(description="How the vectors were computed; null: they were given ready.")
    ]
    parity: Annotated[
        Parity | None,
        Field(description="What shows that ready vectors are the encoder's; null: nothing does, or none are."),
    ] = None
    dtype: Annotated[StoredType, Field(description="How the vectors are stored.")] = "float32"
    metric: Literal["ip"] = "ip"
    rows: Annotated[int, Field(ge=1)]
    ranges: tuple[RowRange, ...]
    files: dict[FileName, FileEntry]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.corpus.passages - sum(self.dropped.values()) != self.rows:
            raise ValueError("corpus.passages less dropped must be rows")
        borders = [0, *(part.stop for part in self.ranges)]
        if [part.start for part in self.ranges] != borders[:-1] or borders[-1] != self.rows:
            raise ValueError("ranges must cover the rows without gap or overlap")
        if (
            any(part.start >= part.stop for part in self.ranges)
            or len({part.file for part in self.ranges}) < len(borders) - 1
        ):
            raise ValueError("ranges must have rows, and each a file of its own")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest's canonical JSON."""
        return hashlib.sha256(_canonical(self.model_dump(mode="json"))).hexdigest()

    def overlapping(self, start: int, stop: int) -> tuple[RowRange, ...]:
        """The files that hold any of the rows `start` up to and without `stop`."""
        return tuple(part for part in self.ranges if part.start < stop and start < part.stop)

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
            content = strict_json.parse(path.read_bytes())
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
            digest = manifest.digest
        except (ValueError, RecursionError) as error:  # of the model, or of what no JSON in UTF-8 can say
            raise IndexCorruptError(f"{path}: not a manifest: {error}") from error
        if digest != recorded:
            raise IndexCorruptError(f"{path}: does not match its own digest; rebuild the index")
        needed = [PASSAGES_FILE, OFFSETS_FILE, *(part.file for part in manifest.ranges)]
        if missing := [name for name in needed if name not in manifest.files]:  # a plan lists its vectors' files later
            raise IndexCorruptError(f"{path}: files: {missing[0]} is not listed; rebuild the index")
        return manifest

    def check_encoder(self, spec: EncoderSpec) -> None:
        """Refuse an encoder that is not the one that built the index.

        Names and revisions are labels and may differ: the digests of the weights decide.

        Raises:
            IndexMismatchError: names each field that differs, what the index has and what was given.
        """
        if differing := differences("encoder", self.encoder.recipe(), spec.recipe(), "the index has"):
            raise IndexMismatchError(differing)

    def check_corpus(self, passages: Iterable[Passage]) -> None:
        """Refuse an index that was built from other passages than these, or from the same in another order.

        Raises:
            IndexMismatchError: names each field that differs, what the index has and what was given.
        """
        given = CorpusSummary.of(passages)
        if differing := differences("corpus", self.corpus.model_dump(), given.model_dump(), "the index has"):
            raise IndexMismatchError(differing)

    def check_files(self, folder: Path, *, verify: bool = True) -> None:
        """Check each file's size and, if `verify` or if the index is small, its SHA-256.

        Raises:
            IndexCorruptError: names the first file that is missing, has another size, or has other contents.
        """
        hashed = verify or sum(entry.size for entry in self.files.values()) < ALWAYS_VERIFIED_BYTES
        for name in self.files:
            self.check_file(folder, name, hashed=hashed)

    def check_file(self, folder: Path, name: str, *, hashed: bool = True) -> None:
        """Check one file's size and, if `hashed`, its SHA-256.

        Raises:
            IndexCorruptError: names the file, and what is wrong with it.
        """
        self.files[name].check(folder / name, hashed=hashed)


class CorpusSummary:
    """Sums up a corpus passage by passage."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._hash = hashlib.sha256()

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Corpus:
        """The summary of all of `passages`."""
        summary = cls()
        for _ in summary.watch(passages):
            pass
        return summary.corpus()

    def watch(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Pass the passages on, and take each into account."""
        for passage in passages:
            self._counts[passage.corpus] = self._counts.get(passage.corpus, 0) + 1
            self._hash.update(passage_line(passage))
            yield passage

    def corpus(self) -> Corpus:
        """The summary so far."""
        return Corpus(counts=self._counts, passages=sum(self._counts.values()), sha256=self._hash.hexdigest())


def file_entry(path: Path) -> FileEntry:
    """Describe a finished file of an index."""
    return FileEntry(size=path.stat().st_size, sha256=sha256_file(path))


def differences(part: str, ours: dict[str, Any], given: dict[str, Any], whose: str) -> str:
    """Each field that differs or that only one side has, what `ours` has and what was given; empty: none does."""
    told = [
        (field, *(repr(side[field]) if field in side else "nothing" for side in (ours, given)))
        for field in {**ours, **given}
        if field not in ours or field not in given or ours[field] != given[field]
    ]
    return "; ".join(f"{part}.{field}: {whose} {had}, given was {got}" for field, had, got in told)


def _canonical(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
