"""Judge packs into a folder, a little slowly. Run by test_evaluate_judging.py, twice at once. Arguments: index, folder, packs."""

import sys
from pathlib import Path

from evaluate_fakes import judge_of, wanted

from configs.settings import RetrievalSettings, Settings
from eval.runfolder import RunError, RunFolder
from medverify.cli.evaluate_judging import judge_packs

settings = Settings(retrieval=RetrievalSettings(index=sys.argv[1]))
try:
    judge = judge_of(settings.judge, delay_s=0.1)
    judge_packs(judge, settings, wanted(*map(Path, sys.argv[3:])), RunFolder(Path(sys.argv[2])))
except RunError as error:
    sys.exit(str(error))
