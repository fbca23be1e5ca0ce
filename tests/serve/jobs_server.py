"""A service that keeps jobs in the folder given, and writes down in a file which questions it is asked, if one is named.

Run by test_jobs_live.py, which kills it.
"""

import os
import re
import sys
from pathlib import Path

from serve_fakes import INFO, judge_of, open_engine, writes

from configs.settings import JobSettings, PathSettings, ServeSettings, Settings
from serve.app import create_app
from serve.listen import listen
from serve.stores import Stores
from verifier.engines.base import EngineError

state, asked, delay_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])


def noted(text: str) -> str | EngineError:
    """What the judge writes; each case is noted once it is begun."""
    if "[1] Warfarin" not in text and asked.name != "-":
        log = os.open(asked, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, re.findall(r"Question (\d+)\?", text)[-1].encode() + b"\n")
        os.close(log)
    return writes(text)


engine = open_engine(delay_s=delay_s)
engine.script = noted
serve = ServeSettings(retry_after_s=1, jobs=JobSettings(in_flight=4))
settings = Settings(serve=serve, paths=PathSettings(state=state))
listen(create_app(judge_of(engine), serve, INFO, Stores.of(settings)), host="127.0.0.1", port=0, drain_s=5)
