"""Rerank a file, a little slowly. Run by test_rerank_run.py, which kills it. Arguments: input, output."""

import sys
from pathlib import Path

from rerank_fakes import Reader, run

run(Path(sys.argv[1]), Path(sys.argv[2]), Reader(delay_s=0.01))
