"""Where a benchmark's rows come from: the hub, a local copy of a hub repository, or one file."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol

import httpx2

from configs import strict_json
from configs.reasons import reason
from eval.benchmarks.catalogue import Benchmark
from eval.benchmarks.schema import BenchmarkError
from retrieval.passage import SourceError
from retrieval.sources.hub import streamed

Rows = Iterator[tuple[str, Mapping[str, Any]]]  # place, for messages, and columns

_OTHERWISE = "download it and give its folder or file with --from"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a revision of a hub repository is."""

    sha: str  # 40 hexadecimal digits
    licence: str | None  # as the repository's card gives it


class Hub(Protocol):
    """The part of the hub that is needed."""

    def commit(self, repository: str, revision: str) -> Commit:
        """The commit that a branch, a tag or a hash stands for."""
        ...

    def rows(self, repository: str, config: str | None, split: str, sha: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a split at a commit."""
        ...


class HuggingFaceHub:
    """The hub through `huggingface_hub` and `datasets`."""

    def commit(self, repository: str, revision: str) -> Commit:
        """Raises BenchmarkError if the hub does not tell."""
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise BenchmarkError("datasets is missing; pip install 'medverify[eval]'") from error
        try:
            info = HfApi().dataset_info(repository, revision=revision)
        except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:  # its HTTP client's and its own
            raise _unreachable(repository, revision, error) from error
        if not info.sha:
            raise BenchmarkError(f"the hub names no commit for {repository} at {revision}")
        licence = getattr(info.card_data, "license", None) if info.card_data else None
        return Commit(info.sha, ", ".join(licence) if isinstance(licence, list) else licence)

    def rows(self, repository: str, config: str | None, split: str, sha: str) -> Iterator[Mapping[str, Any]]:
        """Raises BenchmarkError if it cannot be read."""
        yield from loaded(repository, config, split, sha)


def loaded(place: str, config: str | None, split: str, revision: str | None = None) -> Iterator[dict[str, Any]]:
    """Rows of a data set as the `datasets` library reads it, streamed: of a hub repository, or of a folder that is a copy of one.

    Raises:
        BenchmarkError: the library is missing, or it cannot read the set.
    """
    try:
        yield from streamed(place, config=config, split=split, revision=revision)
    except SourceError as error:
        raise BenchmarkError(f"{error}; {_OTHERWISE}") from error


def rows_of(benchmark: Benchmark, hub: Hub, repository: str, commit: Commit) -> Rows:
    """A benchmark's rows from the hub at a commit."""
    for config in benchmark.configs:
        where = f"{repository}@{commit.sha[:12]}{f' ({config})' if config else ''}"
        for number, row in enumerate(hub.rows(repository, config, benchmark.split_there, commit.sha), start=1):
            yield f"{where}, row {number}", row


def local_rows(benchmark: Benchmark, path: Path) -> Rows:
    """A benchmark's rows from a local copy of its repository, or from one file.

    Args:
        benchmark: which; of a file that holds more subjects, its own are taken.
        path: a folder in the hub's layout, or a `.jsonl`, `.json`, `.csv` (each also gzipped) or `.parquet` file.

    Raises:
        BenchmarkError: nothing there can be read.
    """
    if path.is_dir():
        for config in benchmark.configs:
            for number, row in enumerate(loaded(str(path), config, benchmark.split_there), start=1):
                yield f"{path}{f' ({config})' if config else ''}, row {number}", row
        return
    try:
        for number, row in enumerate(_file_rows(path), start=1):
            if not isinstance(row, Mapping):
                raise BenchmarkError(f"{path}, row {number}: expected an object, found {type(row).__name__}")
            if not benchmark.subjects or row.get("subject", "") in benchmark.subjects or "subject" not in row:
                yield f"{path}, row {number}", row
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BenchmarkError(f"{path}: a damaged gzip file: {reason(error)}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise error if isinstance(error, BenchmarkError) else BenchmarkError(f"{path}: {reason(error)}") from error


def read_ids(path: Path) -> frozenset[str]:
    """The ids that make a split: the keys of a JSON object, a JSON list, or one id a line.

    Raises:
        BenchmarkError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        ids = strict_json.parse(text) if text.lstrip()[:1] in ("{", "[") else text.split()
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{path}: {reason(error)}") from error
    return frozenset(map(str, ids))


def _file_rows(path: Path) -> Iterator[Any]:
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise BenchmarkError("pyarrow is missing; pip install 'medverify[eval]'") from error
        if not path.is_file():
            raise BenchmarkError(f"{path}: no such file")
        try:
            yield from parquet.read_table(path).to_pylist()
        except (ArrowException, OSError) as error:
            raise BenchmarkError(f"{path}: a damaged Parquet file, or none: {reason(error)}") from error
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        if name.endswith(".csv"):
            with TextIOWrapper(file, "utf-8-sig", newline="") as text:
                yield from csv.DictReader(text)
        elif name.endswith(".jsonl"):
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        yield strict_json.parse(line)
                    except ValueError as error:
                        raise BenchmarkError(f"{path}, line {number}: not JSON: {reason(error)}") from error
        elif name.endswith(".json"):
            data = strict_json.parse(file.read())
            # PubMedQA's authors publish one object: PubMed id to question.
            yield from ({"pubid": key, **value} for key, value in data.items()) if isinstance(data, dict) else data
        else:
            raise BenchmarkError(f"{path}: expected .jsonl, .json, .csv (or .gz of these), .parquet, or a folder")


def _unreachable(place: str, revision: str, error: Exception) -> BenchmarkError:
    return BenchmarkError(f"{place} at {revision} cannot be read ({type(error).__name__}: {error}); {_OTHERWISE}")
