"""What is written of a ranking, line by line: rows with their judgments, all or the best, or pairs of them (`pairs.py`)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eval.rerank.options import Detail, OutputOptions
from eval.rerank.pairs import pairs_of
from eval.rerank.ranking import Ranking, Sample
from eval.rerank.samples import Samples
from eval.rerank.sources import to_json

_CRITIQUE = ("reasoning", "stop_reason", "detail")
_NAMED_OTHERWISE = ("id", "p_correct", "verdict", "status", "judge_id")


@dataclass(frozen=True, slots=True)
class Writing:
    """A ranking, and what is written of it."""

    ranking: Ranking
    samples: Samples
    options: OutputOptions
    judge_id: str

    def lines(self) -> Iterator[bytes]:
        """JSON without the ends of the lines, question by question."""
        for group in self.ranking.questions():
            if self.options.pairs is not None:
                for pair in pairs_of(group, self.ranking, self.samples, self.options):
                    yield to_json({**pair, "judge_id": self.judge_id})
            elif kept := self._kept(group):
                yield from self._listed(kept) if self.samples.columns.samples else self._rows(kept)

    def _kept(self, group: Sequence[Sample]) -> Sequence[Sample]:
        """All of them, unless only the best are wanted: then what was not judged is not among them."""
        options = self.options
        if options.keep_best is None and options.min_p is None:
            return group
        good = [sample for sample in group if sample.p is not None and sample.p >= (options.min_p or 0)]
        return good[: options.keep_best]

    def _rows(self, kept: Sequence[Sample]) -> Iterator[bytes]:
        """One line a sample. The row's own text is not written anew: numbers keep their spelling, keys their order."""
        into = json.dumps(self.options.into).encode()
        for sample in kept:
            row = self.ranking.row(sample).text.strip().removesuffix(b"}").rstrip()
            yield b"%s, %s: %s}" % (row, into, to_json(self._result(sample)))

    def _listed(self, kept: Sequence[Sample]) -> Iterator[bytes]:
        """One line for all samples of a row."""
        record, name = json.loads(self.ranking.row(kept[0]).text), self.samples.columns.samples
        record[name] = [record[name][sample.place] for sample in kept]
        record[self.options.into] = [{"sample": sample.place, **self._result(sample)} for sample in kept]
        yield to_json(record)

    def _result(self, sample: Sample) -> dict[str, Any]:
        result = {
            "p_correct": sample.p,
            "verdict": sample.verdict,
            "status": sample.status.value,
            "rank": sample.rank,
            "judge_id": self.judge_id,
        }
        if self.options.detail is Detail.SCORES:
            return result
        judgment = self.ranking.judgment(sample)
        if self.options.detail is Detail.CRITIQUE:
            return result | {name: judgment[name] for name in _CRITIQUE}
        return result | {name: value for name, value in judgment.items() if name not in _NAMED_OTHERWISE}
