"""Make traces into a file, a little slowly. Run by test_generate.py, which kills it.

Arguments: output file, number of questions.
"""

import asyncio
import sys
from pathlib import Path

from generate_fakes import generation, questions

from eval.generate import TraceLine
from eval.journal import Journal


async def main() -> None:
    run = generation(questions(int(sys.argv[2])), delay_s=0.01)
    with Journal(Path(sys.argv[1]), TraceLine, noun="trace") as journal:
        done = run.resume(journal)
        print(len(done), flush=True)
        async for wave in run.waves(len(done)):
            journal.append(wave)


asyncio.run(main())
