"""What a service keeps on the disk: keys, judgments that were made, and the log of what was given."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Self

from configs.settings import Settings
from serve import audit, cache, keys
from serve.audit import AuditLog
from serve.audit_store import AuditStore
from serve.cache import JudgmentCache
from serve.keys import KeyStore

logger = logging.getLogger(__name__)

_TIDY_S = 3600.0  # between two rounds of deleting what is old


@dataclass(frozen=True, slots=True)
class Stores:
    """Each may be missing: a service without them judges all the same, for anybody."""

    keys: KeyStore | None = None
    cache: JudgmentCache | None = None
    audit: AuditLog | None = None

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
        )

    async def keep_tidy(self) -> None:
        """Delete what is old, now and then; runs until it is cancelled."""
        while True:
            if self.cache is not None:
                await self.cache.tidy()
            if self.audit is not None:
                await self.audit.tidy()
            await asyncio.sleep(_TIDY_S)

    async def aclose(self) -> None:
        """Write what is waiting and close all files."""
        if self.cache is not None:
            await self.cache.aclose()
        if self.audit is not None:
            await self.audit.aclose()
        if self.keys is not None:
            self.keys.close()
