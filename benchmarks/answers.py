"""What it costs to read the answer of a trace: `python -m benchmarks.answers`.

Texts that make the patterns work hardest, as a policy could write them, at two lengths: the time is to double with the length.
"""

import argparse
import time

from verifier.answers import extract_answer

_OPTIONS = {"A": "Warfarin", "B": "Heparin", "C": "Aspirin", "D": "Clopidogrel"}
#: What is written again and again.
WORST = (
    "so ",
    "so now ",
    "so (",
    "so A, ",
    "the answer is ",
    "the answer is A, not ",
    "answer is neither A nor ",
    "not A, ",
    "answer to ",
    "answer for option ",
    "is correct ",
    "most likely is A is correct ",
    "Warfarin ",
    "(A) ",
    "\\boxed{",
    "\\boxed{A} ",
    "<answer>",
    '{"answer": ',
    "答案",
    "a\n",
    '" ',
    "~~",
)


def main() -> None:
    """Print the seconds for each text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=120_000)
    characters = parser.parse_args().characters
    print(f"seconds of one core for {characters // 2:,} and {characters:,} characters")
    for unit in WORST:
        half, whole = (_seconds(unit * (size // len(unit))) for size in (characters // 2, characters))
        print(f"{unit!r:32} {half:6.2f} {whole:6.2f}")


def _seconds(text: str) -> float:
    start = time.process_time()
    extract_answer(text, _OPTIONS)
    return time.process_time() - start


if __name__ == "__main__":
    main()
