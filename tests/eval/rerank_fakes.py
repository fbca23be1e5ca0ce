"""A judge that reads its probability off the trace, and files of samples. Importable from a subprocess as well."""

import asyncio
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.rerank.options import OutputOptions
from eval.rerank.run import Done, Output, Watch, rerank
from eval.rerank.samples import Columns, Samples
from eval.rerank.sources import open_source
from verifier.types import Case, Judgment, Status, StopReason, Usage

JUDGE_ID = "a" * 64


@dataclass
class Reader:
    """`0.7 because …` has p 0.7; `unclear …` cannot be read; `down …` finds the engine broken for as long as it is."""

    max_together: int = 3
    judge_id: str = JUDGE_ID
    seed: int = 0
    broken: bool = True
    delay_s: float = 0.0
    waves: list[list[str]] = field(default_factory=list)
    closed: bool = False

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        self.waves.append([case.id for case in cases])
        await asyncio.sleep(self.delay_s)
        return [self._judge(case) for case in cases]

    async def aclose(self) -> None:
        self.closed = True

    def _judge(self, case: Case) -> Judgment:
        word = case.trace.render().removeprefix("Step 1: ").split()[0]
        status = Status.UNPARSEABLE if word == "unclear" else Status.SCORED
        if word == "down":
            status = Status.ENGINE_FAILED if self.broken else Status.SCORED
        p = (0.5 if word == "down" else float(word)) if status is Status.SCORED else None
        return Judgment(
            id=case.id,
            status=status,
            verdict=None if p is None else int(p > 0.5),
            p_correct=p,
            label_mass=None if p is None else 0.8,
            forced=False,
            reasoning=f'It "says" {word}.\u2028"case_digest":"é"',
            searches=[],
            stop_reason=StopReason.ANSWERED if status is not Status.ENGINE_FAILED else StopReason.ENGINE_ERROR,
            turns=1,
            format_score=None,
            detail="out of order" if p is None else "",
            usage=Usage(policy_tokens=7),
            latency_ms=3.0,
            seed=self.seed,
            case_digest=case.digest,
            judge_id=self.judge_id,
        )


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """JSON lines; bytes are written as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read_lines(path: Path) -> list[Any]:
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def sample(question: str, trace: object, **more: Any) -> dict[str, Any]:
    return {"question": question, "trace": trace, **more}


def run(
    path: Path, out: Path, judge: Reader | None = None, columns: Columns | None = None, *, retry_failed: bool = False,
    **options: Any,
) -> Done:  # fmt: skip
    """A whole run; gives what came of it."""
    judge = judge or Reader()
    done, _ = rerank(
        lambda: judge, Samples(open_source(path), columns or Columns()), OutputOptions(**options), Output(out),
        retry_failed=retry_failed, watch=Watch(),
    )  # fmt: skip
    return done


def many(count: int) -> list[dict[str, Any]]:
    """Samples of a few questions, apart from one another."""
    return [sample(f"Question {i % 5}?", f"{(i * 37 % 101) / 101:.4f} é {i}", n=i) for i in range(count)]
