"""Judge cases into a file, a little slowly. Run by test_run.py, which kills it. Arguments: output file, number of cases."""

import asyncio
import sys
from pathlib import Path

from eval_fakes import cases, scripted_judge

from eval.run import Journal, judge_waves


async def main() -> None:
    judge, todo = scripted_judge(delay_s=0.01), cases(int(sys.argv[2]))
    with Journal(Path(sys.argv[1])) as journal:
        done = journal.resume(judge, todo)
        print(len(done), flush=True)
        async for wave in judge_waves(judge, todo, len(done)):
            journal.append(wave)


asyncio.run(main())
