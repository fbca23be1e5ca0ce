"""Start a build and hang in the middle of it. Run by test_build.py, which kills it. Arguments: target, marker file."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from retrieval_fakes import FakeEncoder, passages

from retrieval.build import build_index
from retrieval.encoder import Vectors
from retrieval.passage import Passage


class HangingEncoder(FakeEncoder):
    calls = 0

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        self.calls += 1
        if self.calls == 2:
            Path(sys.argv[2]).touch()
            time.sleep(60)
        return super().encode_passages(passages)


build_index(passages(), HangingEncoder(), Path(sys.argv[1]), overwrite=True)
