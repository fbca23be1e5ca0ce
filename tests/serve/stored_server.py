"""A service that keeps what it judges, in the folder given. Run by test_kept_after_kill.py, which kills it."""

import sys
from pathlib import Path

from serve_fakes import INFO, judge_of

from configs.settings import PathSettings, ServeSettings, Settings
from serve.app import create_app
from serve.listen import listen
from serve.stores import Stores

settings = Settings(serve=ServeSettings(), paths=PathSettings(state=Path(sys.argv[1])))
listen(create_app(judge_of(), settings.serve, INFO, Stores.of(settings)), host="127.0.0.1", port=0, drain_s=5)
