"""What is attacked: a judge in this process, whose episodes can be looked into, or one at a URL, which only answers."""

import asyncio
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path

from eval.attack.attack import Attack
from eval.attack.audit import AuditedJudgment, is_foreign
from eval.attack.poison import PoisonedRetriever
from eval.run import Journal
from retrieval.passage import Passage
from verifier.judge import Judge, Outcome
from verifier.remote import RefusedError, RemoteJudge
from verifier.types import Case, Judgment


class AttackJournal(Journal):
    """The judgments of attacks, with what their audit found."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, AuditedJudgment)


class AttackedJudge:
    """A judge in this process that judges attacks by their ids, each with its own poison, and audits every verdict.

    Waves start together and advance in step, as those of `Judge.verify_together`.
    """

    def __init__(self, judge: Judge, attacks: Iterable[Attack], max_together: int | None = None) -> None:
        """Args:
        judge: whose engine nobody else uses.
        attacks: what will be judged.
        max_together: cases of a wave; as many as the engine takes if None.
        """
        self._judge = judge
        self._poisoned = {attack.id: _poisoned(judge, attack.poison) for attack in attacks if attack.poison is not None}
        self.judge_id = judge.judge_id
        self.seed = judge.seed
        self.max_together = min(max_together or judge.max_together, judge.max_together)

    def calibrates(self, judgment: Judgment) -> bool:
        """As the judge's own."""
        return self._judge.calibrates(judgment)

    async def warm_up(self) -> None:
        """Compute what all prompts share before the first case comes."""
        await self._judge.warm_up()

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[AuditedJudgment]:
        """Judge a wave.

        Raises:
            EngineError: the engine gives no place; nothing was judged.
        """
        async with self._judge.engine.open(len(cases)) as places:
            runs = [
                self._poisoned.get(case.id, self._judge).run(case, place, seed)
                for case, place in zip(cases, places, strict=True)
            ]
            return [self._audited(outcome) for outcome in await asyncio.gather(*runs)]

    def _audited(self, outcome: Outcome) -> AuditedJudgment:
        foreign = is_foreign(outcome, self._judge.engine.tokenizer)
        return AuditedJudgment(**outcome.judgment.model_dump(), foreign=foreign)


def _poisoned(judge: Judge, poison: Passage) -> Judge:
    """The same judge with a poisoned index behind it."""
    twin = copy(judge)
    twin.retriever = PoisonedRetriever(judge.retriever, poison)
    return twin


class NotPoisonedError(RuntimeError):
    """A judge at a URL does not search where its searches can be poisoned; the message says what to do."""


class PoisonedRemoteJudge:
    """A judge at a URL that searches through our retriever: each attack with a passage is judged alone, with it in the index."""

    def __init__(self, remote: RemoteJudge, attacks: Iterable[Attack], retriever: PoisonedRetriever) -> None:
        """Args:
        remote: the judge.
        attacks: what will be judged.
        retriever: what its service asks; nobody else does.
        """
        self._remote, self._retriever = remote, retriever
        self._poison = {attack.id: attack.poison for attack in attacks if attack.poison is not None}
        self.judge_id = remote.judge_id
        self.seed = remote.seed
        self.max_together = remote.max_together

    def calibrates(self, judgment: Judgment) -> bool:
        """As the remote judge's own."""
        return self._remote.calibrates(judgment)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._remote.aclose()

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        """Judge a wave, in the order of `cases`.

        Raises:
            NotPoisonedError: a judgment shows searches that did not come to our retriever.
        """
        plain = [case for case in cases if case.id not in self._poison]
        judged = {one.id: one for one in await self._remote.verify_together(plain, seed)}
        for case in cases:
            if case.id in self._poison:
                judged[case.id] = await self._alone(case, seed)
        return [judged[case.id] for case in cases]

    async def _alone(self, case: Case, seed: int | None) -> Judgment:
        before = self._retriever.searches
        self._retriever.poison = self._poison[case.id]
        try:
            judgment = await self._remote.verify(case, seed)
        finally:
            self._retriever.poison = None
        if judgment.searches and self._retriever.searches == before:
            raise NotPoisonedError(
                f"{self._remote.url} shows searches for {case.id} that it did not ask for now: it searches elsewhere, or keeps "
                "judgments. Start it with --set retrieval.index=URL of the poisoned index and --set serve.cache.max_rows=0"
            )
        return judgment


async def offer_unfit(judge: RemoteJudge, attacks: Iterable[Attack]) -> dict[str, Judgment]:
    """Send what our own schema refuses to a service, and return the judgments of those that it takes all the same.

    Raises:
        RemoteJudgeError: it neither judged nor refused one.
    """
    taken = dict[str, Judgment]()
    for attack in attacks:
        if attack.case() is None:
            question = attack.base.labelled.case.question.model_dump(mode="json", exclude_none=True)
            body = {"case": {"id": attack.id, "question": question, "trace": attack.trace}, "seed": judge.seed}
            try:
                taken[attack.id] = await judge.ask(body)
            except RefusedError:
                continue
    return taken
