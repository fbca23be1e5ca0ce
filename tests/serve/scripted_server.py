"""A server whose judge takes its time. Run by test_live_server.py, which stops it with a signal."""

import uvicorn
from serve_fakes import app_of, judge_of, open_engine

engine = open_engine(delay_s=0.5)
uvicorn.run(app_of(judge_of(engine)), port=0, log_level="info", ws="none")
