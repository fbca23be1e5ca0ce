"""`medverify world` and `medverify swapped-facts`: material whose right and wrong a search can tell."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from medverify.cli.common import JsonOption, fail, mended_by_user, out, waiting


def world(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; those of an earlier world are replaced.")],
    seed: Annotated[
        int,
        typer.Option(min=0, help="Same seed, same bytes. Names are new for every 16 seeds that follow one another."),
    ] = 0,
    drugs: Annotated[int, typer.Option(min=20, max=2000, help="Invented drugs; an even number.")] = 200,
    questions: Annotated[int, typer.Option(min=1, help="At most 12 for each drug.")] = 400,
    traces: Annotated[int, typer.Option(min=2, help="Reasoning traces for each question, half of them wrong.")] = 4,
    claims: Annotated[int, typer.Option(min=1, max=4, help="Statements in each trace.")] = 3,
    errors: Annotated[
        Literal["anywhere", "answer"],
        typer.Option(help="Where wrong traces are wrong: in any claim, or in the one that decides the answer."),
    ] = "anywhere",
    passages: Annotated[
        int, typer.Option(min=1, max=4, help="Shown in a demonstration; as many as `judge.top_k` of the training.")
    ] = 2,
    held_out_templates: Annotated[
        bool, typer.Option("--held-out-templates", help="Word the test world as the training world never is.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Invent a formulary: drugs that exist nowhere, a corpus about them, and right and subtly wrong reasoning.

    Nobody can know these drugs, so a judge tells right from wrong by searching, or not at all. There are two worlds, `train`
    and `test`, without a name in common. Each has a corpus to index and a pack to evaluate on:

        medverify world OUT
        medverify index build OUT/test.formulary.jsonl -o OUT/index
        medverify eval OUT/test --set retrieval.index=OUT/index -o RUN

    `train` has whole episodes to imitate as well (train.demonstrations.jsonl). The manifest says what was made.
    """
    from pydantic import ValidationError

    from curriculum.closed_world.files import write_worlds
    from curriculum.closed_world.names import NamesSpentError
    from curriculum.closed_world.world import Recipe

    try:
        recipe = Recipe(
            seed=seed,
            drugs=drugs,
            questions=questions,
            traces=traces,
            claims=claims,
            errors=errors,
            passages=passages,
            held_out_templates=held_out_templates,
        )
        with waiting("inventing"):
            manifest = write_worlds(folder, recipe)
    except ValidationError as error:
        fail("; ".join(f"{'.'.join(map(str, item['loc'])) or 'recipe'}: {item['msg']}" for item in error.errors()))
    except (NamesSpentError, OSError) as error:
        fail(error)
    _show(manifest, folder, as_json=as_json)


def swapped_facts(
    sources: Annotated[list[str], typer.Argument(help="Corpora, as `medverify index build` takes them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    seed: Annotated[int, typer.Option(min=0, help="Same corpora and seed, same bytes.")] = 0,
    most: Annotated[
        int | None, typer.Option(min=4, help="Claims a side at most; all that can be made if not given.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make claims from real passages, half of them with one fact swapped: a name, a number, a direction, a "not".

    A claim is a sentence of a passage, so evidence for or against it is in an index of the same corpora. Passages are divided
    into `train` and `test` by the hash of their ids, four to one.

        medverify swapped-facts starter corpus.jsonl.gz -o OUT
        medverify index build starter corpus.jsonl.gz -o OUT/index
        medverify eval OUT/test --set retrieval.index=OUT/index -o RUN
    """
    from curriculum.swapped_files import write_claims
    from retrieval.sources import read

    try:
        with mended_by_user(), waiting("reading and swapping"):
            passages = [passage for name in sources for passage in read(name)]
            manifest = write_claims(output, passages, sources, seed=seed, most=most)
    except OSError as error:
        fail(error)
    _show(manifest, output, as_json=as_json)


def _show(manifest: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(manifest))  # noqa: T201 - for programs
        return
    sides = manifest["sides"]
    table = Table("", *sides, header_style="bold")
    counts = [_flat(side["counts"]) for side in sides.values()]
    for name in dict.fromkeys(name for one in counts for name in one):
        table.add_row(name, *(f"{one[name]:,}" if name in one else "" for one in counts))
    out.print(table)
    out.print(f"{folder}: {manifest['name']}, version {manifest['version']}", highlight=False, markup=False)


def _flat(counts: Mapping[str, Any]) -> Mapping[str, int]:
    flat: dict[str, int] = {}
    for name, value in counts.items():
        told = name.replace("_", " ")
        if isinstance(value, Mapping):
            flat |= {f"{told}: {kind}": number for kind, number in value.items()}
        else:
            flat[told] = value
    return flat
