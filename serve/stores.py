"""What a service keeps on the disk: keys, judgments that were made, the log of what was given, and where its jobs are."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from configs.settings import Settings
from serve import audit, cache, keys
from serve.audit import AuditLog
from serve.audit_schemas import Judged
from serve.audit_store import AuditStore
from serve.cache import JudgmentCache
from serve.callers import Caller
from serve.keys import KeyStore
from serve.served_judge import ServedJudge
from verifier.types import Case, Judgment

logger = logging.getLogger(__name__)

#: What is asked about a trace: whether it is free of errors, or whether it holds together.
About = Literal["correctness", "coherence"]
CORRECTNESS: About = "correctness"
_TIDY_S = 3600.0  # between two rounds of deleting what is old


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a case."""

    case: Case
    seed: int | None = None  # in place of the judge's own
    about: About = CORRECTNESS


@dataclass(frozen=True, slots=True)
class Given:
    """A judgment, and whether it was made before."""

    judgment: Judgment
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Stores:
    """Each may be missing: a service without them judges all the same, for anybody."""

    keys: KeyStore | None = None
    cache: JudgmentCache | None = None
    audit: AuditLog | None = None
    jobs: Path | None = None  # a folder

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """What the settings ask for. Nothing is opened before it is needed."""
        state, serve = settings.paths.state, settings.serve
        bounds = serve.cache
        return cls(
            keys=KeyStore(state / keys.FILE),
            cache=JudgmentCache(
                state / cache.FILE,
                max_rows=bounds.max_rows,
                max_bytes=bounds.max_bytes,
                max_age_days=bounds.max_age_days,
            )
            if bounds.max_rows
            else None,
            audit=AuditLog(
                AuditStore(state / audit.FOLDER, serve.audit), refuse=serve.audit.when_unwritable == "refuse"
            )
            if serve.audit.enabled
            else None,
            jobs=state / "jobs",
        )

    async def recall(
        self, judge: ServedJudge, case: Case, seed: int | None, about: str = CORRECTNESS, *, left_s: float
    ) -> Judgment | None:
        """The judgment of a case from the cache, or None.

        Args:
            judge: who is asked.
            case: what is judged.
            seed: in place of the judge's own.
            about: the question that is asked about the trace.
            left_s: seconds that the request has.
        """
        if self.cache is None:
            return None
        return await self.cache.get(judge, case, judge.seed if seed is None else seed, about, left_s=left_s)

    def keep(self, judgment: Judgment, about: str = CORRECTNESS) -> None:
        """Keep a judgment for the next one who asks, if it was scored."""
        if self.cache is not None:
            self.cache.put(judgment, about)

    async def record(
        self,
        asked: Sequence[Asked],
        given: Sequence[Given],
        judge: ServedJudge,
        caller: Caller,
        *,
        request_id: str | None = None,
        left_s: float,
    ) -> list[Judgment]:
        """Write judgments down before they are given, in `left_s` seconds; they come back with their ids in the log.

        Raises:
            ServiceError: 503, where they cannot be written and the settings say that they are refused then.
        """
        if self.audit is None:
            return [item.judgment for item in given]
        index = judge.retriever.digest
        return await self.audit.record(
            [
                Judged(one.case, item.judgment, caller.name, one.about, index, item.cached, request_id)
                for one, item in zip(asked, given, strict=True)
            ],
            left_s=left_s,
        )

    async def keep_tidy(self) -> None:
        """Delete what is old, now and then; runs until it is cancelled."""
        while True:
            for store in (self.cache, self.audit):
                if store is None:
                    continue
                try:
                    await store.tidy()
                except Exception:  # whatever it was, the next round may do better, and must come
                    logger.exception("what is old could not be deleted")
            await asyncio.sleep(_TIDY_S)

    async def aclose(self) -> None:
        """Write what is waiting and close all files."""
        if self.cache is not None:
            await self.cache.aclose()
        if self.audit is not None:
            await self.audit.aclose()
        if self.keys is not None:
            self.keys.close()
