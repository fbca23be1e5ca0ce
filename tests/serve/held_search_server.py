"""A retrieval server whose ranker takes its time. Run by test_retrieval_live.py, which stops it with a signal."""

import time
from collections.abc import Sequence

from search_fakes import WordRanker, search_app

from retrieval.ranker import Ranking
from serve.listen import listen


class SlowRanker(WordRanker):
    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        time.sleep(0.5)
        return super().rank(queries, k)


listen(search_app(SlowRanker()), host="127.0.0.1", port=0, drain_s=2)
