"""From a source to a pack: every row checked, the whole counted, and a file beside it that says where it came from."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs import strict_json
from configs.reasons import reason
from eval.benchmarks.adapters import house, is_house
from eval.benchmarks.catalogue import Benchmark
from eval.benchmarks.schema import BenchmarkError, PlantedError, Row, check_rows
from eval.benchmarks.source import Commit, Hub, Rows, local_rows, rows_of
from verifier.packs import write_rows

_ENDINGS = (".questions.jsonl", ".questions.jsonl.gz", ".traces.jsonl", ".traces.jsonl.gz")


class Provenance(BaseModel):
    """`PREFIX.provenance.json`: what a pack is and where it came from. It holds no date: same source, same bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    what: str
    split: str
    rows: int
    complete: Annotated[bool, Field(description="Whether these are all rows that the benchmark has.")]
    licence: Annotated[str, Field(description="Of the data, as its authors give it.")]
    licence_on_hub: Annotated[str | None, Field(description="What the card of the hub's repository says.")] = None
    homepage: str
    source: Annotated[str, Field(description="Repository on the hub, or name of the local file or folder.")]
    revision: Annotated[str | None, Field(description="Commit of the repository; null for a local copy.")] = None
    sha256: Annotated[str, Field(description="Over the checked rows: equal for equal content, wherever it was read.")]


def fetch(
    benchmark: Benchmark,
    prefix: Path,
    hub: Hub,
    *,
    local: Path | None = None,
    repository: str | None = None,
    revision: str | None = None,
    ids: frozenset[str] | None = None,
    partial: bool = False,
) -> Provenance:
    """Read a benchmark and write `PREFIX.questions.jsonl.gz` and `PREFIX.provenance.json`; of MEDEC `.traces.jsonl.gz` too.

    Args:
        benchmark: which.
        prefix: path of the pack without the endings; nothing may be there yet.
        hub: asked where there is no local copy.
        local: file or folder to read instead of the hub.
        repository: a copy on the hub in place of the catalogue's, as `name` or `name@revision`.
        revision: branch, tag or commit; it is resolved to a commit, read at that commit, and recorded. None: the catalogue's.
        ids: keep these only, as the publisher spells them.
        partial: accept another number of rows than the benchmark has.

    Raises:
        BenchmarkError: the source cannot be read, or is not this benchmark.
    """
    for ending in _ENDINGS:
        if (path := Path(f"{prefix}{ending}")).exists():
            raise BenchmarkError(f"{path} is there already; name another PREFIX, or move it away")
    if benchmark.chosen_by and ids is None:
        raise BenchmarkError(
            f"{benchmark.name} is a part of a larger set: give its authors' list {benchmark.chosen_by} with --ids "
            f"(see {benchmark.homepage})"
        )
    commit = None
    if local is not None:
        found, source = local_rows(benchmark, local), local.name
    else:
        source, wanted = _place(benchmark, repository, revision)
        commit = hub.commit(source, wanted)
        found = rows_of(benchmark, hub, source, commit)
    expected = None if partial else benchmark.rows
    rows = check_rows(_adapted(benchmark, found, ids), benchmark.name, expected)
    return _write(benchmark, prefix, rows, source, commit)


def _place(benchmark: Benchmark, repository: str | None, revision: str | None) -> tuple[str, str]:
    """The repository to read and the revision of it.

    Raises:
        BenchmarkError: no revision is known, or two are given.
    """
    source, _, named = (repository or benchmark.repository or "").partition("@")
    if named and revision:
        raise BenchmarkError(f"two revisions are given, {named!r} with --repository and {revision!r} with --revision")
    pinned = benchmark.revision if source == benchmark.repository else None
    wanted = revision or named or pinned
    if not source or not wanted:
        raise BenchmarkError(
            f"{benchmark.name}: no commit of {source or 'a repository'} is known here. Give one with --repository NAME@COMMIT "
            f"(or a branch, as NAME@main), or download the data from {benchmark.homepage} and give the file with --from"
        )
    return source, wanted


def read_provenance(prefix: Path) -> dict[str, Any]:
    """What stands beside a pack that was fetched or generated here.

    Raises:
        BenchmarkError: there is no such file, or it is none of ours.
    """
    path = Path(f"{prefix}.provenance.json")
    try:
        facts = strict_json.parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{path}: {reason(error)}") from error
    if not isinstance(facts, dict):
        raise BenchmarkError(f"{path}: not an object")
    return facts


def _adapted(benchmark: Benchmark, found: Rows, ids: frozenset[str] | None) -> Iterator[Row]:
    for number, (where, columns) in enumerate(found, start=1):
        adapter = house if is_house(columns) else benchmark.adapter
        try:
            row = adapter(columns, number, benchmark.split)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'row'}: {item['msg']}" for item in error.errors())
            raise BenchmarkError(f"{where}: {faults}") from error
        except KeyError as error:
            raise BenchmarkError(f"{where}: no column, or no known value, {error} of {benchmark.name}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise BenchmarkError(f"{where}: {error}") from error
        if ids is None or row.id.partition("-")[2] in ids or row.id in ids:
            yield row


def _write(benchmark: Benchmark, prefix: Path, rows: list[Row], source: str, commit: Commit | None) -> Provenance:
    questions = [row.question_row() for row in rows]
    traces = [row.trace_row() for row in rows if isinstance(row, PlantedError)]
    content = json.dumps([questions, traces], ensure_ascii=False, sort_keys=True).encode()
    provenance = Provenance(
        benchmark=benchmark.name,
        what=benchmark.what,
        split=benchmark.split,
        rows=len(rows),
        complete=len(rows) == benchmark.rows,
        licence=benchmark.licence,
        licence_on_hub=commit.licence if commit else None,
        homepage=benchmark.homepage,
        source=source,
        revision=commit.sha if commit else None,
        sha256=hashlib.sha256(content).hexdigest(),
    )
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_rows(Path(f"{prefix}.provenance.json"), [provenance.model_dump()])
    if traces:
        write_rows(Path(f"{prefix}.traces.jsonl.gz"), traces)
    write_rows(Path(f"{prefix}.questions.jsonl.gz"), questions)
    return provenance
