"""Choosing what an iteration trains on: candidates from the pool pass the gates, in the eyes of the policy as it is now."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, ValidationError

from configs.appended import AppendedFile, ResumeError
from curriculum.gates import Admission, Gate, Tried, of_length, varied, well_formed
from curriculum.pool.example import Example
from curriculum.pool.pool import Pool
from curriculum.rollouts import Group, roll_out
from curriculum.settings import FilterSettings, Iteration
from verifier.judge import Judge


class _Candidate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    correct: tuple[bool | None, ...]
    rewards: tuple[float, ...]  # of the judged rollouts
    format: tuple[float, ...]
    tokens: tuple[int, ...]  # written by the policy


class _Wave(BaseModel):
    model_config = ConfigDict(extra="forbid")

    candidates: tuple[_Candidate, ...]


@dataclass(slots=True)
class Selection:
    """What an iteration trains on, and what was tried for it."""

    examples: list[Example] = field(default_factory=list)
    admission: Admission = field(default_factory=lambda: Admission(()))
    tokens: int = 0  # written by the policy in all rollouts of candidates
    spent: bool = False  # the pool ended before the budget was full


class SelectionLog(AppendedFile):
    """A file that holds the outcome of each wave of candidates, so that a selection that was killed goes on."""

    def waves(self) -> list[_Wave]:
        """The waves that are there whole; a torn last one is cut off.

        Raises:
            ResumeError: a line is not a wave.
        """
        with self.told():
            data = self.path.read_bytes()
        whole, _, _ = data.rpartition(b"\n")
        self.cut(len(whole) + 1 if whole else 0)
        try:
            return [_Wave.model_validate_json(line) for line in whole.splitlines()]
        except ValidationError as error:
            raise ResumeError(f"{self.path} cannot be continued: it is not the log of a selection") from error


async def select(
    judge: Judge,
    pool: Pool,
    iteration: Iteration,
    seed: int,
    log: SelectionLog,
    *,
    tell: Callable[[Selection], None] = lambda _: None,
) -> Selection:
    """Draw candidates until the budget is full, half per label, or the pool is spent.

    Candidates of a label whose half is full are passed over unsampled. What the log holds is not sampled again.

    Args:
        pool: as it was when the selection first began.
        seed: of this iteration's rollouts.
        tell: told after each wave.
    """
    selection = Selection(admission=Admission(gates_of(iteration.gates)))
    wanted = {0: iteration.budget // 2, 1: iteration.budget - iteration.budget // 2}
    known = iter(log.waves())
    for wave in _waves(pool, wanted, max(1, judge.max_together // iteration.group)):
        logged = next(known, None)
        outcome = logged or _wave(await roll_out(judge, wave, iteration.group, seed))
        if [candidate.id for candidate in outcome.candidates] != [example.case.id for example in wave]:
            raise ResumeError(f"{log.path} cannot be continued: it is of other candidates")
        if logged is None:
            log.add(outcome.model_dump_json().encode() + b"\n")
        for example, candidate in zip(wave, outcome.candidates, strict=True):
            selection.tokens += sum(candidate.tokens)
            if _admit(selection.admission, candidate) and wanted[example.label]:
                wanted[example.label] -= 1
                selection.examples.append(example)
        tell(selection)
    selection.spent = any(wanted.values())
    return selection


def take(pool: Pool, iteration: Iteration) -> Selection:
    """What an iteration without a filter trains on: what the pool gives."""
    examples = pool.draw(iteration.budget + iteration.budget % 2)
    return Selection(examples=examples, spent=len(examples) < iteration.budget)


def gates_of(settings: FilterSettings) -> list[Gate]:
    """The gates that settings ask for; the variance of correctness always comes first."""
    gates: list[Gate] = [varied]
    if settings.least_tokens or settings.most_tokens is not None:
        gates.append(of_length(settings.least_tokens, settings.most_tokens or 2**31))
    if settings.well_formed:
        gates.append(well_formed(settings.well_formed))
    return gates


def _waves(pool: Pool, wanted: dict[int, int], size: int) -> Iterator[list[Example]]:
    """Candidates of labels that are still wanted, `size` at a time."""
    wave: list[Example] = []
    while any(wanted.values()):
        drawn = pool.draw(2)
        wave += [example for example in drawn if wanted[example.label]]
        if len(wave) >= size or not drawn:
            if wave:
                yield wave[:size]
            wave = wave[size:]
        if not drawn:
            if wave:
                yield wave
            return


def _wave(groups: list[Group]) -> _Wave:
    return _Wave(candidates=tuple(map(_candidate, groups)))


def _candidate(group: Group) -> _Candidate:
    tried = [rollout.tried for rollout in group]
    return _Candidate(
        id=group[0].example.case.id,
        correct=tuple(one.correct for one in tried),
        rewards=tuple(rollout.reward.total for rollout in group if rollout.reward),
        format=tuple(one.format for one in tried),
        tokens=tuple(one.tokens for one in tried),
    )


def _admit(admission: Admission, candidate: _Candidate) -> bool:
    outcomes = zip(candidate.correct, candidate.format, candidate.tokens, strict=True)
    return admission.admit([Tried(*one) for one in outcomes], candidate.rewards)
