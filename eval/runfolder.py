"""The folder of an evaluation: what ran, every judgment, the times it took. One command at a time writes into it.

run.json                            what ran: packs, judge, settings, seeds; what a later command adds joins it
judgments/PACK.jsonl                one judgment a line (`eval/run.py`); PACK.seed1.jsonl, PACK.without-search.jsonl
timings.jsonl                       seconds of each wave; judgments themselves carry no clock
evidence.json                       which passages that were shown are not in the index
report.json, .html, .md, figures/   what was found, made again from the above at any time
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.durable import write_whole
from eval.quality import read_judgments
from eval.report.schema import JudgeFacts
from verifier.types import Judgment


class RunError(ValueError):
    """A folder that is not what an evaluation leaves; the message says what is wrong."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PackRun(_Part):
    """One pack of the run."""

    name: str
    prefix: Annotated[str, Field(description="Path without the two endings.")]
    scorers: Annotated[
        list[str] | None, Field(description="Suffixes of those that judged it; null: all of the run.")
    ] = None


class ScorerRun(_Part):
    """One judge of the run: the configured one, the same with another seed, the same without search."""

    scorer: str
    suffix: Annotated[str, Field(description="What its files are called, after the pack's name.")]
    judge_id: str
    seed: int


class Run(_Part):
    """What ran."""

    format: Literal[1] = 1
    medverify: Annotated[str, Field(description="Version that wrote this.")]
    packs: list[PackRun]
    traces: Annotated[int | None, Field(description="First so many traces of each question; null: all.")]
    questions: Annotated[int | None, Field(description="Size of the sample of questions; null: all.")]
    sample_seed: int
    scorers: list[ScorerRun]
    judge: JudgeFacts | None
    settings: dict[str, Any]
    calibrated_on: Annotated[
        list[str], Field(description="Digests of the questions that the judge's calibration was fitted on.")
    ] = []

    def scorers_of(self, pack: str) -> list[ScorerRun]:
        """Who judged a pack of the run."""
        wanted = next(one.scorers for one in self.packs if one.name == pack)
        return [scorer for scorer in self.scorers if wanted is None or scorer.suffix in wanted]


class Timing(_Part):
    """How long one wave took."""

    file: str
    start: int
    count: int
    seconds: float


class Evidence(_Part):
    """What became of the passages that judgments show when they were looked up in the index."""

    index: Annotated[str, Field(description="Digest of the index.")]
    unresolved: Annotated[list[tuple[str, str]], Field(description="Corpus and id of passages that it does not hold.")]


_Kind = TypeVar("_Kind", Run, Evidence)
_Item = TypeVar("_Item")


class RunFolder:
    """Reads and writes the files of one evaluation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the folder, if need be; raises OSError."""
        (self.path / "judgments").mkdir(parents=True, exist_ok=True)

    def journal(self, pack: str, suffix: str) -> Path:
        """Where the judgments of one scorer lie."""
        return self.path / "judgments" / f"{pack}{suffix}.jsonl"

    def judgments(self, pack: str, suffix: str) -> list[Judgment]:
        """What has been judged; raises ValueError for a line that is not a judgment."""
        path = self.journal(pack, suffix)
        return read_judgments(path) if path.exists() else []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands from writing into the folder, which must be there.

        Raises:
            RunError: another command is writing into it.
            OSError: it cannot be written.
        """
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(
                    f"{self.path}: another command is writing into this folder. Wait for it, or name another folder with -o."
                ) from error
            yield

    def check_fits(self, run: Run) -> None:
        """See that a run can be added to what the folder holds; nothing is written.

        Raises:
            RunError: the folder holds a run of another judge, or of another part of the packs.
        """
        if (self.path / "run.json").exists():
            _check_same(self.path, self.read_run(), run)

    def write_run(self, run: Run) -> Run:
        """Say what runs; packs and judges that earlier commands brought stay.

        Returns:
            What ran, in all.

        Raises:
            RunError: as `check_fits`.
        """
        self.check_fits(run)
        if (self.path / "run.json").exists():
            run = joined(self.read_run(), run)
        write_whole(self.path / "run.json", run.model_dump_json(indent=2) + "\n")
        return run

    def has_judgments(self) -> bool:
        """Whether somebody judged here."""
        return (self.path / "run.json").exists()

    def read_run(self) -> Run:
        """What ran.

        Raises:
            RunError: there is no such file, or it is something else.
        """
        return self._read("run.json", Run)

    def add_timing(self, timing: Timing) -> None:
        """Note how long a wave took."""
        with (self.path / "timings.jsonl").open("a", encoding="utf-8") as file:
            file.write(timing.model_dump_json() + "\n")

    def seconds_per_trace(self, journal: Path, judged: int) -> float | None:
        """Wall-clock seconds by trace, over the waves that stand in a journal of `judged` lines; None if none was timed.

        A wave that was judged again counts once, as it went the last time.
        """
        waves = {
            timing.start: timing
            for timing in self._timings()
            if timing.file == journal.name and timing.start + timing.count <= judged
        }
        traces = sum(wave.count for wave in waves.values())
        return sum(wave.seconds for wave in waves.values()) / traces if traces else None

    def write_evidence(self, evidence: Evidence) -> None:
        """Keep what became of the passages, so that it need not be looked up again."""
        write_whole(self.path / "evidence.json", evidence.model_dump_json() + "\n")

    def read_evidence(self) -> Evidence | None:
        """What became of the passages; None if nobody looked."""
        return self._read("evidence.json", Evidence) if (self.path / "evidence.json").exists() else None

    def _timings(self) -> Iterable[Timing]:
        path = self.path / "timings.jsonl"
        if not path.exists():
            return
        for line in path.read_bytes().splitlines():
            try:
                yield Timing.model_validate_json(line)
            except ValidationError:
                continue  # cut short by a kill: the wave is judged again and timed again

    def _read(self, name: str, kind: type[_Kind]) -> _Kind:
        path = self.path / name
        try:
            return kind.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}; is {self.path} the folder of an evaluation?") from error
        except ValidationError as error:
            raise RunError(f"{path}: not what `medverify eval` writes ({error.error_count()} problems)") from error


def joined(before: Run, now: Run) -> Run:
    """Both as one run: a pack lies where it lay last, and each keeps the judges that it had."""
    packs = {pack.name: _with_scorers(pack, before) for pack in before.packs}
    for pack in (_with_scorers(pack, now) for pack in now.packs):
        had = packs[pack.name].scorers if pack.name in packs else None
        packs[pack.name] = pack.model_copy(update={"scorers": _union(had or [], pack.scorers or [])})
    judge = now.judge
    if judge is not None and before.judge is not None:
        judge = judge.model_copy(update={"seeds": _union(before.judge.seeds, judge.seeds)})
    scorers = {scorer.suffix: scorer for scorer in (*before.scorers, *now.scorers)}
    return now.model_copy(
        update={
            "packs": list(packs.values()),
            "scorers": list(scorers.values()),
            "judge": judge,
            "calibrated_on": _union(before.calibrated_on, now.calibrated_on),
        }
    )


def _with_scorers(pack: PackRun, run: Run) -> PackRun:
    every = [scorer.suffix for scorer in run.scorers]
    return pack if pack.scorers is not None else pack.model_copy(update={"scorers": every})


def _union(first: Sequence[_Item], second: Sequence[_Item]) -> list[_Item]:
    return list(dict.fromkeys([*first, *second]))


def _check_same(path: Path, before: Run, now: Run) -> None:
    known = {scorer.suffix: scorer for scorer in before.scorers}
    for scorer in now.scorers:
        had = known.get(scorer.suffix, scorer)
        if had.judge_id != scorer.judge_id:
            raise RunError(
                f"{path} holds judgments of another judge ({had.judge_id[:12]}…, now {scorer.judge_id[:12]}…). "
                "Name another folder with -o."
            )
        if had.seed != scorer.seed:
            raise RunError(
                f"{path} was begun with judge.sampling.seed = {had.seed}, not {scorer.seed}. Name another folder with -o."
            )
    for name in ("traces", "questions", "sample_seed"):
        if getattr(before, name) != getattr(now, name):
            raise RunError(
                f"{path} was begun with {name} = {getattr(before, name)}, not {getattr(now, name)}. "
                "Name another folder with -o."
            )


def settings_of(dump: Any) -> dict[str, Any]:
    """Settings as they are kept: plain JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dump, default=str))
    return plain
