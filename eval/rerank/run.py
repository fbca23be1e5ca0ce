"""One run: from judgments to a finished output that knows which run it is of.

Beside OUT stand OUT.run.json (what was asked for, what came of it), OUT.judgments.jsonl (each judgment, whole) and, if there are
any, OUT.rejected.jsonl (rows that could not be judged as they are). OUT itself appears when it is whole.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from configs.appended import ResumeError
from configs.digest import sha256_file
from configs.durable import publish, write_whole
from eval.cases import BadLine
from eval.rerank.judging import Progress, judge_again, judge_file
from eval.rerank.judgments import Identity, JudgmentsFile, Kept, is_finished, read_identity
from eval.rerank.options import OutputOptions
from eval.rerank.output import Writing
from eval.rerank.ranking import Figures, ranked
from eval.rerank.samples import Samples
from eval.rerank.sources import Row, to_json
from eval.rerank.writers import write
from eval.run import Judging
from verifier.judge import Judge

_ANOTHER = "Name another file with -o, or move this one away"


class Done(BaseModel):
    """What came of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str  # of the output
    judgments_sha256: str  # of the file that it was made from
    lines: int
    rejected: int  # rows, or samples of rows, that could not be judged or written as they are
    figures: Figures


class Run(BaseModel):
    """What OUT.run.json says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judged: Identity
    options: OutputOptions
    done: Done | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a run and the files beside it."""

    path: Path

    def beside(self, suffix: str) -> Path:
        """The file of this name beside the output."""
        return self.path.with_name(f"{self.path.name}.{suffix}")

    @property
    def judgments(self) -> Path:
        return self.beside("judgments.jsonl")

    @property
    def rejected(self) -> Path:
        return self.beside("rejected.jsonl")

    def check_free(self) -> None:
        """Refuse what could not be written in the end, before anything is loaded.

        Raises:
            ResumeError: the output exists and is no run's.
            FileNotFoundError: there is no folder for it.
        """
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"{self.path.parent}: no such folder")
        if self.path.exists() and self._run() is None:
            raise ResumeError(f"{self.path} exists and was not written by `medverify rerank`. {_ANOTHER}")

    def finished(self, now: Run, judgments: Path) -> Done | None:
        """What came of this very run if it is finished; None if the output is still to be written, or to be written again.

        Args:
            now: what is asked for.
            judgments: that it is made from; where they are others by now, after an outage was mended, so is the output.

        Raises:
            ResumeError: the output is of another run, or was changed since.
        """
        if not self.path.exists():
            return None
        then = self._run()
        if then is None or then.done is None:
            raise ResumeError(f"{self.path} exists and was not written by `medverify rerank`. {_ANOTHER}")
        if difference := then.judged.difference(now.judged) or _difference(then.options, now.options):
            raise ResumeError(f"{self.path} is the output of another run: {difference}. {_ANOTHER}")
        part = self.beside("part")
        if part.exists() and sha256_file(part) == then.done.sha256:  # killed before its last step
            publish(part, self.path)
        if sha256_file(self.path) != then.done.sha256:
            raise ResumeError(f"{self.path} was changed after it was written. {_ANOTHER}")
        return then.done if then.done.judgments_sha256 == sha256_file(judgments) else None

    def make(self, samples: Samples, judgments: Path, run: Run) -> Done:
        """Rank, write, and put the output in place. Killed, it is done again from the judgments.

        Raises:
            ResumeError: the judgments are not those of this file.
            WriteError: the rows do not fit the format.
            SourceError, OSError: a file cannot be read or written.
        """
        part = self.beside("part")
        with (
            self._rejecting() as rejecting,
            ranked(samples, run.options, judgments, self.beside("ranking"), rejecting) as ranking,
        ):
            figures = ranking.figures()
            writing = Writing(ranking, samples, run.options, run.judged.judge_id)
            schema = None if run.options.pairs else samples.source.schema
            count = write(writing.lines, part, self.path.name, schema)
        done = Done(
            sha256=sha256_file(part),
            judgments_sha256=sha256_file(judgments),
            lines=count,
            rejected=rejecting.count,
            figures=figures,
        )
        self._tell(run.model_copy(update={"done": done}))
        publish(part, self.path)
        return done

    def _run(self) -> Run | None:
        try:
            return Run.model_validate_json(self.beside("run.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _tell(self, run: Run) -> None:
        write_whole(self.beside("run.json"), json.dumps(run.model_dump(mode="json"), indent=1) + "\n")

    @contextmanager
    def _rejecting(self) -> Iterator["_Rejecting"]:
        """Write what is rejected beside the output; no file if there is nothing."""
        part = self.beside("rejected.part")
        with part.open("wb") as file:
            rejecting = _Rejecting(file)
            yield rejecting
        if rejecting.count:
            publish(part, self.rejected)
        else:
            part.unlink()
            self.rejected.unlink(missing_ok=True)


@dataclass(slots=True)
class _Rejecting:
    file: BinaryIO
    count: int = 0

    def __call__(self, row: Row, bad: BadLine) -> None:
        self.count += 1
        told = {bad.unit: bad.line, "problems": bad.problems, "row": row.text.decode(errors="replace")}
        self.file.write(to_json(told) + b"\n")


def _difference(then: OutputOptions, now: OutputOptions) -> str | None:
    before, after = then.model_dump(mode="json"), now.model_dump(mode="json")
    changed = [f"{name} was {before[name]} and is {after[name]}" for name in before if before[name] != after[name]]
    return "; ".join(changed) or None


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how a run goes on."""

    on_progress: Callable[[Progress], None] = lambda _: None
    on_again: Callable[[int], None] = lambda _: None  # cases that were judged again
    on_bad: Callable[[BadLine], None] = lambda _: None  # a row, or sample, that cannot be judged as it is
    on_ranking: Callable[[], None] = lambda: None  # all is judged


class ClosableJudge(Judging, Protocol):
    """A judge that a run was given for itself."""

    async def aclose(self) -> None: ...


def rerank(
    load: Callable[[], ClosableJudge],
    samples: Samples,
    options: OutputOptions,
    output: Output,
    *,
    retry_failed: bool = False,
    watch: Watch = Watch(),
) -> tuple[Done, bool]:
    """Judge what is not judged yet, and write the output unless it is this very run's already. Blocks.

    Args:
        load: gives the judge, which is closed at the end.
        samples: the file, and where they are in it.
        options: what is written.
        output: where.
        retry_failed: judge again what an outage or a deadline left unjudged.
        watch: told how it goes.

    Returns:
        What came of the run, and whether there was anything to do.

    Raises:
        ResumeError: a file of another run is in the way, or another run is at work on this one.
        OutageError: nothing can be judged any more; what was judged stays.
        WriteError: the rows do not fit the format.
        SourceError, OSError: a file cannot be read or written.
    """
    judge = load()
    with JudgmentsFile(output.judgments) as file:
        judged = Identity(
            input_sha256=sha256_file(samples.source.path),
            columns=samples.columns,
            judge_id=judge.judge_id,
            seed=judge.seed,
            wave=judge.max_together,
        )
        run = Run(judged=judged, options=options)
        done = output.finished(run, file.path)
        kept = file.resume(judged)
        if done and not (retry_failed and kept.outages):
            asyncio.run(judge.aclose())
            return done, False
        asyncio.run(_judge(judge, samples, file, kept, watch, again=run.judged if retry_failed else None))
        watch.on_ranking()
        return output.make(samples, file.path, run), True


async def _judge(
    judge: ClosableJudge, samples: Samples, file: JudgmentsFile, kept: Kept, watch: Watch, *, again: Identity | None
) -> None:
    """Judge the rest, and then what `again` names, if it does."""
    try:
        if isinstance(judge, Judge) and not kept.finished:
            await judge.warm_up()
        async for progress in judge_file(judge, samples, file, kept, watch.on_bad):
            watch.on_progress(progress)
        if again:
            async for count in judge_again(judge, samples, again, file.path):
                watch.on_again(count)
    finally:
        await judge.aclose()


def write_again(samples: Samples, options: OutputOptions, output: Output, judgments: Path) -> tuple[Done, bool]:
    """Write another output from the judgments of a run that is finished; as `rerank`, without a judge.

    Raises:
        ResumeError: the judgments are not finished, or not of this file; or as `rerank`.
        WriteError, SourceError, OSError: as `rerank`.
    """
    judged = read_identity(judgments)
    if judged is None or not is_finished(judgments):
        raise ResumeError(f"{judgments}: its run is not finished; run that one again first")
    now = judged.model_copy(update={"input_sha256": sha256_file(samples.source.path), "columns": samples.columns})
    if difference := judged.difference(now):
        raise ResumeError(f"{judgments} does not hold the judgments of {samples.source.path}: {difference}")
    run = Run(judged=judged, options=options)
    if done := output.finished(run, judgments):
        return done, False
    return output.make(samples, judgments, run), True
