"""Fill a cache and tell what is in it. Run by test_cache.py, which kills it. Arguments: file, first number."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from store_fakes import judgment

from serve.cache import JudgmentCache


async def fill(path: Path, first: int) -> None:
    cache = JudgmentCache(path, max_rows=100_000, max_bytes=1_000_000_000, max_age_days=0)
    for number in count(first):
        cache.put(judgment(number, size=2000), "correctness")
        await cache.flush()
        print(number, flush=True)


asyncio.run(fill(Path(sys.argv[1]), int(sys.argv[2])))
