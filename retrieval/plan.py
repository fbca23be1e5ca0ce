"""What a build is going to be: its plan, and the manifest as it grows from the texts to the last shard."""

from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.clean import Cleaner
from retrieval.encoder_spec import Arithmetic, EncoderSpec
from retrieval.manifest import Corpus, CorpusSummary, Manifest, StoredType, differences, file_entry
from retrieval.passage import BuildError, Passage, UnfinishedError
from retrieval.shards import Written, plan_ranges
from retrieval.textstore import OFFSETS_FILE, PASSAGES_FILE
from retrieval.workspace import Workspace


class Plan(BaseModel):
    """What an unfinished build is going to be: how it is made, and its manifest without the vectors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    how: dict[str, Any]
    manifest: Manifest


def unfinished(workspace: Workspace) -> Plan | None:
    """The plan of a build whose texts are complete, if there is one.

    Raises:
        UnfinishedError: another release left it.
    """
    if not (workspace.plan.exists() and workspace.index.exists()):
        return None
    try:
        return Plan.model_validate_json(workspace.plan.read_bytes())
    except ValidationError as error:
        raise UnfinishedError(
            f"{workspace.target}: {workspace.plan} is not a plan that this release reads; ask for a fresh start"
        ) from error


def settled(workspace: Workspace, how: dict[str, Any], passages: Iterable[Passage]) -> Manifest | None:
    """The manifest of the index in place, if it is what this build makes, and its builder was killed before it could tell.

    Args:
        how: this build's; `passages` are only read if the index in place was made so. The workspace is locked.

    Raises:
        BuildError: it was made of other passages.
    """
    left = workspace.settled()
    if left is None:
        return None
    manifest, made = left
    same = not differences("build", made, how, "it has")
    changed = same and CorpusSummary.of(passages) != manifest.corpus
    workspace.forget()
    if changed:
        raise BuildError(
            f"{workspace.target} exists: a build of other passages was killed just before its end, and has been brought to "
            "it. Give this command again, asking for it to be overwritten"
        )
    return manifest if same else None


def manifest_of_texts(
    folder: Path,
    corpus: Corpus,
    cleaner: Cleaner,
    *,
    spec: EncoderSpec,
    arithmetic: Arithmetic | None,
    dtype: StoredType,
    shard_rows: int,
) -> Manifest:
    """The manifest of an index whose texts are written, without its vectors; `cleaner` is the one that cleaned `corpus`.

    Raises:
        BuildError: nothing is left of the corpus.
    """
    dropped = dict(cleaner.counts)
    rows = corpus.passages - sum(dropped.values())
    if rows == 0:
        raise BuildError(f"nothing to index: of {corpus.passages} passages, dropped {dropped}")
    return Manifest(
        created_by=release(),
        corpus=corpus,
        cleaning=cleaner.options.model_dump(mode="json"),
        dropped=dropped,
        encoder=spec,
        arithmetic=arithmetic,
        dtype=dtype,
        rows=rows,
        ranges=plan_ranges(rows, shard_rows),
        files={name: file_entry(folder / name) for name in (PASSAGES_FILE, OFFSETS_FILE)},
    )


def with_shards(manifest: Manifest, shards: Sequence[Written]) -> Manifest:
    """A manifest that lacks the vectors, with all of them."""
    vectors = {shard.part.file: shard.entry for shard in shards}
    ranges = [shard.part for shard in shards]
    return Manifest.model_validate(dict(manifest) | {"ranges": ranges, "files": {**manifest.files, **vectors}})


def release() -> str:
    """What writes manifests: the installed release, or `source` when run from a checkout that was never installed."""
    try:
        return f"medverify {metadata.version('medverify')}"
    except metadata.PackageNotFoundError:
        return "medverify source"
