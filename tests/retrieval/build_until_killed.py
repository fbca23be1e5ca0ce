"""Build an index slowly. Run by test_build.py, which kills it. Arguments: target, seconds that a shard takes."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from retrieval_fakes import FakeEncoder, passages

from retrieval.build import build_index
from retrieval.encoder import Vectors
from retrieval.passage import Passage


class SlowEncoder(FakeEncoder):
    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        time.sleep(float(sys.argv[2]))
        return super().encode_passages(passages)


build_index(passages(), SlowEncoder(), Path(sys.argv[1]), overwrite=True, shard_rows=20)
