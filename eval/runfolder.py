"""The folder of an evaluation: what ran, every judgment, the times it took.

run.json                            what ran: packs, judge, settings, seeds
judgments/PACK.jsonl                one judgment a line (`eval/run.py`); PACK.seed1.jsonl, PACK.without-search.jsonl
timings.jsonl                       seconds of each wave; judgments themselves carry no clock
evidence.json                       which passages that were shown are not in the index
report.json, .html, .md, figures/   what was found, made again from the above at any time
"""

import json
from collections.abc import Iterable
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

    def write_run(self, run: Run) -> None:
        """Say what runs; what an earlier command of the same run said is replaced.

        Raises:
            RunError: the folder holds a run of another judge, or of another part of the packs.
        """
        if (self.path / "run.json").exists():
            self._check_same(self.read_run(), run)
        write_whole(self.path / "run.json", run.model_dump_json(indent=2) + "\n")

    def _check_same(self, before: Run, now: Run) -> None:
        judges = {scorer.suffix: scorer.judge_id for scorer in before.scorers}
        for scorer in now.scorers:
            known = judges.get(scorer.suffix, scorer.judge_id)
            if known != scorer.judge_id:
                raise RunError(
                    f"{self.path} holds judgments of another judge ({known[:12]}…, now {scorer.judge_id[:12]}…). "
                    "Name another folder with -o."
                )
        for name in ("traces", "questions", "sample_seed"):
            if getattr(before, name) != getattr(now, name):
                raise RunError(
                    f"{self.path} was begun with {name} = {getattr(before, name)}, not {getattr(now, name)}. "
                    "Name another folder with -o."
                )

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


def settings_of(dump: Any) -> dict[str, Any]:
    """Settings as they are kept: plain JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dump, default=str))
    return plain
