"""A retrieval server whose ranker takes its time. Run by test_retrieval_live.py, which stops it with a signal."""

import time
from collections.abc import Sequence

import uvicorn
from search_fakes import WordRanker, search_app

from retrieval.ranker import Ranking


class SlowRanker(WordRanker):
    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        time.sleep(0.5)
        return super().rank(queries, k)


uvicorn.run(search_app(SlowRanker()), port=0, log_level="info", ws="none")
