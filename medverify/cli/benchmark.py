"""`medverify benchmark`: public benchmarks as packs."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from eval.benchmarks.catalogue import BENCHMARKS, Benchmark
from eval.benchmarks.fetch import fetch as fetch_pack
from eval.benchmarks.fetch import read_provenance
from eval.benchmarks.schema import BenchmarkError
from eval.benchmarks.source import HuggingFaceHub, read_ids
from medverify.cli.common import JsonOption, err, fail, mended_by_user, out, quiet_libraries, waiting
from medverify.cli.flags import refuse_unread
from verifier.overlap import OverlapError, Pair, find_overlap
from verifier.packs import PackError, read_questions

_SHOWN = 20  # pairs of an overlap; --json gives all


def list_benchmarks() -> None:
    """List the benchmarks that `fetch` knows, with rows, licence and place."""
    table = Table(header_style="bold")
    for name in ("name", "rows", "licence"):
        table.add_column(name, justify="right" if name == "rows" else "left", no_wrap=True)
    table.add_column("what, and its place on the hub", overflow="fold")
    for benchmark in BENCHMARKS.values():
        place = f"{benchmark.repository}@{benchmark.revision[:12] if benchmark.revision else '(give a commit)'}"
        about = Text.assemble(benchmark.what, "\n", (place, "dim"))
        table.add_row(benchmark.name, f"{benchmark.rows:,}", benchmark.licence, about)
    out.print(table)


def show(
    name: Annotated[str, typer.Argument(help="A name from `medverify benchmark list`, or the PREFIX of a pack.")],
) -> None:
    """Show where a benchmark, or a pack that was made here, comes from: licence, source, revision, rows."""
    if benchmark := BENCHMARKS.get(name):
        facts = _facts(benchmark)
    else:
        try:
            facts = read_provenance(Path(name))
        except BenchmarkError as error:
            fail(
                f"{name!r} is no benchmark and no pack with a provenance file ({error}). "
                f"The benchmarks are {', '.join(BENCHMARKS)}"
            )
    _print(facts)


def fetch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name from `medverify benchmark list`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="PREFIX of the pack: .questions.jsonl.gz and .provenance.json.")
    ],
    local: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Read this instead of the hub: a copy of the repository, or a JSONL, JSON, CSV or Parquet file.",
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            help="Commit, tag or branch on the hub, in place of the usual one; the commit that it stands for is recorded."
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(help="A copy on the hub, in place of the usual one: NAME@COMMIT.", metavar="NAME@COMMIT"),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Keep only these ids: a JSON object by id, a JSON list, or one a line.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept another number of rows than the benchmark has.")
    ] = False,
) -> None:
    """Read a benchmark, check every row, and write it as a pack.

    Refused: a row without its columns, an answer that is not among the options, an id that comes twice, another number of rows.
    """
    if name not in BENCHMARKS:
        fail(f"{name!r} is no benchmark; known are {', '.join(BENCHMARKS)}")
    if local is not None:
        refuse_unread(context, ("revision", "repository"), "with --from nothing is read from the hub")
    with mended_by_user(), waiting(f"reading {name}"):
        quiet_libraries()
        try:
            made = fetch_pack(
                BENCHMARKS[name],
                output,
                HuggingFaceHub(),
                local=local,
                repository=repository,
                revision=revision,
                ids=read_ids(ids) if ids else None,
                partial=partial,
            )
        except (BenchmarkError, OSError) as error:
            fail(error)
    _print(made.model_dump())
    if made.revision and revision and made.revision != revision:
        err.print(f"{revision} is this commit today; the same again: --revision {made.revision}", highlight=False)


def overlap(
    pack: Annotated[Path, typer.Argument(help="PREFIX of the pack whose questions are to be new.", metavar="PREFIX")],
    pool: Annotated[list[Path], typer.Option(help="PREFIX of a training pool; may be given again.")],
    threshold: Annotated[
        float, typer.Option(min=0.5, max=1, help="Similarity from which on questions are near.")
    ] = 0.8,
    as_json: JsonOption = False,
) -> None:
    """Report the questions of a pack that are in a training pool too, word for word or nearly.

    Similarity is Jaccard's over five-character pieces of the question, without case and punctuation. Pairs whose right
    answers have the same text are leaks; pairs with different answers are mostly two questions of one mould.
    """
    try:
        asked = read_questions(pack)
        pairs = [(str(one), pair) for one in pool for pair in find_overlap(asked, read_questions(one), threshold)]
    except (PackError, OverlapError) as error:
        fail(error)
    if as_json:
        found = [{"pool": one, **dataclasses.asdict(pair)} for one, pair in pairs]
        print(json.dumps({"pack": str(pack), "questions": len(asked), "threshold": threshold, "pairs": found}))  # noqa: T201
        return
    _show_pairs(len(asked), pairs)


def _show_pairs(asked: int, pairs: list[tuple[str, Pair]]) -> None:
    if pairs:
        table = Table("question", "in the pool", "kind", "similarity", "same answer", header_style="bold")
        for _, pair in sorted(pairs, key=lambda found: (-found[1].same_answer, -found[1].similarity))[:_SHOWN]:
            same = "yes" if pair.same_answer else "no"
            table.add_row(escape(pair.question), escape(pair.pooled), pair.kind, f"{pair.similarity:.2f}", same)
        out.print(table)
    exact = {pair.question for _, pair in pairs if pair.kind == "exact"}
    near = {pair.question for _, pair in pairs} - exact
    leaks = {pair.question for _, pair in pairs if pair.same_answer}
    more = f"; {len(pairs) - _SHOWN} more pairs with --json" if len(pairs) > _SHOWN else ""
    out.print(
        f"of {asked:,} questions {len(exact)} are in the pool word for word, {len(near)} nearly; "
        f"{len(leaks)} of these with the same right answer{more}",
        highlight=False,
    )


def _facts(benchmark: Benchmark) -> dict[str, object]:
    known = dataclasses.asdict(benchmark)
    del known["adapter"]
    known["configs"] = ", ".join(config for config in benchmark.configs if config)
    known["subjects"] = ", ".join(sorted(benchmark.subjects))
    return {name: value for name, value in known.items() if value or name == "revision"}


def _print(facts: dict[str, object]) -> None:
    for name, value in facts.items():
        said = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else _said(value)
        out.print(f"[bold]{escape(name.replace('_', ' '))}[/]  {escape(said)}", highlight=False, soft_wrap=True)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else str(value)
