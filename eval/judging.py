"""The judges that one evaluation runs, and the way of one over a pack: the configured judge, other seeds, no search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from configs.settings import JudgeSettings
from eval.run import Journal, judge_waves
from eval.runfolder import Timing
from verifier.judge import Judge
from verifier.remote import RemoteJudge
from verifier.types import Case, Judgment

JUDGE, WITHOUT_SEARCH = "judge", "judge without search"


@dataclass(frozen=True, slots=True)
class Variant:
    """A judge as it is set for one pass over the packs."""

    scorer: str
    suffix: str  # of its files
    settings: JudgeSettings

    def of(self, judge: Judge | RemoteJudge) -> Judge | RemoteJudge:
        """The same engine, index and prompt with these settings, and the same calibration where it is still the same judge.

        Of a judge at a URL only the seed can be set.
        """
        if isinstance(judge, RemoteJudge):
            return judge.seeded(self.settings.sampling.seed)
        made = Judge(judge.engine, judge.retriever, judge.prompt, judge.mode, self.settings)
        if made.judge_id == judge.judge_id:  # another seed, for one
            made.calibration = judge.calibration
        return made


def variants(settings: JudgeSettings, seeds: int = 1, *, without_search: bool = False) -> list[Variant]:
    """The configured judge first; then the seeds that follow its own; then the one that may not search."""
    first = settings.sampling.seed
    made = [Variant(JUDGE, "", settings)]
    for seed in range(first + 1, first + seeds):
        sampling = settings.sampling.model_copy(update={"seed": seed})
        changed = settings.model_copy(update={"sampling": sampling})
        made.append(Variant(f"{JUDGE}, seed {seed}", f".seed{seed}", changed))
    if without_search:
        made.append(Variant(WITHOUT_SEARCH, ".without-search", settings.without_search()))
    return made


class Pass:
    """A judge's way over the cases, into a file that is open."""

    def __init__(
        self, journal: Journal, judge: Judge | RemoteJudge, cases: Sequence[Case], *, retry_failed: bool = False
    ) -> None:
        """Go back to where the file stands; nothing is judged yet.

        Args:
            journal: the open file; `eval.run.Journal` says what is promised of it.
            judge: who judges.
            cases: all of them, those that have been judged included.
            retry_failed: judge waves again that an outage or a deadline hit.

        Raises:
            ResumeError: the file holds something else.
            OutputError: it cannot be read or cut.
        """
        self.judgments: list[Judgment] = list(journal.resume(judge, cases, retry_failed=retry_failed))
        self._journal, self._judge, self._cases = journal, judge, cases

    async def finish(self, on_timing: Callable[[Timing], object] = lambda _: None) -> None:
        """Judge the rest.

        Args:
            on_timing: told how long each wave took that was judged, once it is on the disk.

        Raises:
            OutputError: the file cannot be written.
            OutageError: nothing can be judged any more; what was judged stays.
        """
        started = time.perf_counter()
        async for wave in judge_waves(self._judge, self._cases, len(self.judgments), self._journal):
            self._journal.append(wave)
            ended = time.perf_counter()
            start = len(self.judgments)
            if self._journal.known(start) is None:
                on_timing(Timing(file=self._journal.path.name, start=start, count=len(wave), seconds=ended - started))
            started = ended
            self.judgments += wave

    @property
    def judged(self) -> int:
        """Cases that are judged, or were before the file went back and need not be judged again."""
        return len(self.judgments) + self._journal.known_lines
