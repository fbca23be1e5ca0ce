"""The curriculum filter before an iteration: which traces the policy that is about to be trained gets both right and wrong.

Groups are sampled and told to a journal one after another, so that a run that was stopped goes on where it was.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from configs import strict_json
from configs.durable import append
from curriculum.gates import Admission, Tried, varied
from verifier.judge import Judge
from verifier.reward import reward
from verifier.transcript import Author
from verifier.types import Case, StopReason

_MOST_FAILED = 0.5  # share of a wave's rollouts; beyond it something is out of order, and the pool must not be spent on it


class FilterError(Exception):
    """The filter cannot go on; the message says why."""


class Labelled(Protocol):
    """What is drawn from a pool (`curriculum.pool.example.Example`)."""

    @property
    def case(self) -> Case: ...
    @property
    def label(self) -> Literal[0, 1]: ...
    @property
    def question_id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def generator(self) -> str: ...


class Draws(Protocol):
    """A pool, as far as it is used here."""

    def draw(self, count: int) -> Sequence[Labelled]:
        """The next examples, half of each label; fewer when the pool is spent."""
        ...


@dataclass(frozen=True, slots=True)
class Group:
    """What came of the rollouts of one example."""

    example: Labelled
    tried: Sequence[Tried]
    rewards: Sequence[float]  # of those that were judged


@dataclass(slots=True)
class Filtered:
    """What is trained on, and what was seen on the way."""

    kept: list[Labelled] = field(default_factory=list)
    admission: Admission = field(default_factory=lambda: Admission([varied]))
    spent: bool = False  # the pool ended before the budget was full


async def tried_group(judge: Judge, example: Labelled, size: int, seed: int) -> tuple[Group, Counter[str]]:
    """Sample `size` episodes of an example together.

    Returns:
        The group, and what kept rollouts from being judged.
    """
    async with judge.engine.open(size) as sequences:
        outcomes = await asyncio.gather(
            *(
                judge.run(example.case, sequence, rollout_seed(seed, example.case, number))
                for number, sequence in enumerate(sequences)
            )
        )
    tried, rewards, failed = [], [], Counter[str]()
    for outcome in outcomes:
        judgment = outcome.judgment
        given = reward(outcome.read, example.label, judgment.stop_reason)
        tokens = outcome.transcript.count(Author.POLICY)
        if given is None:
            failed[f"{judgment.stop_reason}: {judgment.detail}"] += 1
            tried.append(Tried(None, 0.0, tokens))
        else:
            tried.append(Tried(given.correctness == 1, given.format, tokens))
            rewards.append(given.total)
    return Group(example, tried, rewards), failed


def rollout_seed(seed: int, case: Case, number: int) -> int:
    """The seed of one rollout: another for each case and each of its group, whatever order they come in."""
    text = f"{seed} {case.digest} {number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


async def filtered(
    judge: Judge,
    pool: Draws,
    budget: int,
    size: int,
    seed: int,
    *,
    journal: "Journal",
    held_out: Iterable[tuple[str, str]] = (),
    progress: Callable[[Filtered], None] = lambda _: None,
) -> Filtered:
    """Draw and sample until the budget is full, half of it for each label, or the pool is spent.

    Args:
        judge: the policy that is about to be trained, at the temperature and top-p that it is trained at.
        pool: where candidates come from, in the same order in every run.
        budget: examples to keep; an even number.
        size: rollouts of each.
        seed: of the sampling.
        journal: groups that were sampled before are taken from it, and new ones told to it.
        held_out: source and id of questions that are not trained on.
        progress: told after each wave.

    Raises:
        FilterError: more than half of a wave's rollouts failed for reasons outside the policy. The journal has the waves
            before; run the filter again when that is mended.
    """
    so_far, withheld = Filtered(), frozenset(held_out)
    room = Counter[int]({0: budget // 2, 1: budget // 2})
    wave = max(2, judge.engine.max_sequences // size // 2 * 2)
    while room[0] or room[1]:
        drawn = pool.draw(wave)
        if not drawn:
            so_far.spent = True
            break
        wanted = [one for one in drawn if room[one.label] and (one.source, one.question_id) not in withheld]
        for group in await _sampled(judge, wanted, size, seed, journal):
            label = group.example.label
            if room[label] and so_far.admission.admit(group.tried, group.rewards):
                so_far.kept.append(group.example)
                room[label] -= 1
        progress(so_far)
    return so_far


async def _sampled(
    judge: Judge, examples: Sequence[Labelled], size: int, seed: int, journal: "Journal"
) -> Iterator[Group]:
    """The groups of a wave, in its order; all of them are in the journal, or none of the new ones."""
    new = [one for one in examples if one.case.digest not in journal.known]
    found = await asyncio.gather(*(tried_group(judge, one, size, seed) for one in new))
    failed = Counter[str]()
    for _, reasons in found:
        failed += reasons
    if failed.total() > _MOST_FAILED * size * len(new):
        (reason, count) = failed.most_common(1)[0]
        raise FilterError(f"{failed.total()} of {size * len(new)} rollouts failed, {count} of them with {reason}")
    journal.tell([group for group, _ in found])
    return (journal.group_of(one) for one in examples)


class Journal:
    """Groups that were sampled, in a file of JSON lines that a stopped run leaves whole but for its last line."""

    def __init__(self, path: Path, made_with: Mapping[str, Any]) -> None:
        """Open it, or begin one.

        Args:
            made_with: all that a group depends on beside its example.

        Raises:
            FilterError: it was made with something else, or is no journal.
        """
        self.path = path
        self.known: dict[str, Mapping[str, Any]] = {}
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:  # the run was stopped in the middle of a line
            with path.open("r+b") as file:
                file.truncate(len(whole))
        if whole:
            self._read(whole, dict(made_with))
        else:
            self._write([{"made_with": dict(made_with)}])

    def tell(self, groups: Sequence[Group]) -> None:
        """Write groups down."""
        rows = [
            {
                "case": group.example.case.digest,
                "id": group.example.case.id,
                "rollouts": [asdict(one) for one in group.tried],
                "rewards": list(group.rewards),
            }
            for group in groups
        ]
        self._write(rows)
        self.known |= {row["case"]: row for row in rows}

    def group_of(self, example: Labelled) -> Group:
        """The group of an example that was told."""
        row = self.known[example.case.digest]
        return Group(example, [Tried(**one) for one in row["rollouts"]], row["rewards"])

    def _write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        with self.path.open("ab", buffering=0) as file:
            append(file, data)

    def _read(self, whole: bytes, made_with: Mapping[str, Any]) -> None:
        try:
            first, *rows = map(strict_json.parse, whole.splitlines())
            before = first["made_with"]
            self.known = {row["case"]: row for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise FilterError(f"{self.path} is no journal of the filter ({error!r:.200}); remove it") from error
        if before != made_with:
            differing = [name for name in made_with if before.get(name) != made_with[name]]
            raise FilterError(
                f"{self.path} was made with another {', '.join(differing)}; use another folder, or remove it"
            )
