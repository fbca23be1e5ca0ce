"""The judging that `medverify attack` does: by a judge in this process, or by one at a URL, whose searches may be poisoned."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from configs.settings import Settings
from medverify.cli.common import err, quiet_libraries, waiting
from medverify.cli.progress import counted_progress
from verifier.types import Judgment

if TYPE_CHECKING:
    from eval.attack.attack import Attack
    from eval.attack.target import AttackJournal
    from eval.run import Judging
    from verifier.prompt import Prompt
    from verifier.remote import RemoteJudge

_START_S = 600.0  # that a service may take to start


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be judged, and where judgments are kept."""

    attacks: "list[Attack]"
    journal: "AttackJournal | None"
    retry_failed: bool


def in_process(settings: Settings, how: Attempt, together: int | None) -> "tuple[list[Judgment], Prompt]":
    """Attack the judge of the settings; what it puts attacks into is its prompt."""
    from eval.attack.target import AttackedJudge

    with waiting("starting") as status:
        quiet_libraries()
        from medverify.assemble import load_judge

        judge = load_judge(settings, status.update, reproducible=True)

    async def run() -> list[Judgment]:
        attacked = AttackedJudge(judge, how.attacks, together)
        await attacked.warm_up()
        judgments = await _judge_all(attacked, how)
        await attacked.aclose()
        return judgments

    return asyncio.run(run()), judge.prompt


async def at_url(
    settings: Settings, how: Attempt, url: str, place: tuple[str, int] | None, together: int
) -> list[Judgment]:
    """Attack the judge of a service; the shipped prompt stands for its own."""
    from eval.attack.poison import PoisonedRetriever
    from eval.attack.target import PoisonedRemoteJudge, offer_unfit
    from verifier.remote import RemoteJudge

    limits, seed = settings.judge.limits, settings.judge.sampling.seed

    async def connect() -> RemoteJudge:
        return await asyncio.to_thread(
            RemoteJudge.connect, url, seed=seed, deadline_s=limits.deadline_s, concurrency=together
        )

    async with AsyncExitStack() as stack:
        judge: RemoteJudge | PoisonedRemoteJudge
        if place is None:
            judge = remote = await connect()
        else:
            with waiting("starting") as status:
                quiet_libraries()
                from medverify.assemble import load_retriever
                from medverify.poisoned_index import poisoned_index

                index = load_retriever(settings, status.update)
            retriever = PoisonedRetriever(index)
            stack.push_async_callback(retriever.aclose)
            address = await stack.enter_async_context(poisoned_index(retriever, settings.retrieve, *place))
            err.print(
                f"searches at {address} are poisoned; the judge: medverify serve --set retrieval.index={address} "
                "--set serve.cache.max_rows=0",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            remote = await _once_started(connect)
            judge = PoisonedRemoteJudge(remote, how.attacks, retriever)
        stack.push_async_callback(remote.aclose)
        judgments = await _judge_all(judge, how)
        return [*judgments, *(await offer_unfit(remote, how.attacks)).values()]


async def _once_started(connect: "Callable[[], Awaitable[RemoteJudge]]") -> "RemoteJudge":
    """Wait for a judge that can only be started now that its index is there."""
    from verifier.remote import UnreachableError

    ends = monotonic() + _START_S
    with waiting("waiting for the judge"):
        while True:
            try:
                return await connect()
            except UnreachableError:
                if monotonic() > ends:
                    raise
            await asyncio.sleep(1)


async def _judge_all(judge: "Judging", how: Attempt) -> list[Judgment]:
    from eval.run import judge_waves

    cases = [case for attack in how.attacks if (case := attack.case()) is not None]
    journal = how.journal
    judgments = journal.resume(judge, cases, retry_failed=how.retry_failed) if journal else []
    with counted_progress() as progress:
        task = progress.add_task("attacking", total=len(cases), completed=len(judgments))
        async for wave in judge_waves(judge, cases, len(judgments), journal):
            if journal:
                journal.append(wave)
            judgments += wave
            progress.update(task, completed=len(judgments))
    return judgments
