import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from generate_fakes import generation, questions
from pydantic import ValidationError

from configs.appended import ResumeError
from eval.generate import (
    EMPTY,
    Cost,
    Generation,
    GenerationError,
    Sampling,
    TraceLine,
    load_generator_prompt,
    seed_of,
)
from eval.journal import Journal
from eval.outage import OutageError
from verifier.packs import FAILED, QuestionRow, read_pack, write_rows

ASKED = questions(5)  # twenty traces: six waves of three, and two


def make(path: Path, run: Generation | None = None, waves: int = 99, *, retry_failed: bool = False) -> list[TraceLine]:
    """A run, from wherever the file stands, that ends after so many waves."""
    run = run or generation(ASKED)

    async def go(journal: Journal[TraceLine]) -> list[TraceLine]:
        lines = run.resume(journal, retry_failed=retry_failed)
        left = waves
        async for wave in run.waves(len(lines), journal):
            if left == 0:
                break
            journal.append(wave)
            lines = [*lines, *wave]
            left -= 1
        return lines

    with Journal(path, TraceLine, noun="trace") as journal:
        return asyncio.run(go(journal))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pack.traces.jsonl"


def test_the_traces_are_a_pack(path: Path, tmp_path: Path) -> None:
    lines = make(path)
    write_rows(tmp_path / "pack.questions.jsonl.gz", (row.model_dump(exclude_unset=True) for row in ASKED))
    cases = read_pack(tmp_path / "pack")
    assert [labelled.case.id for labelled in cases] == [line.trace_id for line in lines]
    assert [labelled.case.id for labelled in cases][:5] == [
        "q0#scripted#001", "q0#scripted#002", "q0#scripted#003", "q0#scripted#004", "q1#scripted#001",
    ]  # fmt: skip
    for labelled, line in zip(cases, lines, strict=True):
        assert labelled.case.trace.text == line.reasoning
        assert (labelled.answer, labelled.gold, labelled.generator) == (line.pred, "B", "scripted")
        assert labelled.label == int(line.pred == "B")
    assert len({line.pred for line in lines}) > 1


def test_every_trace_has_a_seed_of_its_own_that_is_told(path: Path) -> None:
    run = generation(ASKED, seed=7)
    lines = make(path, run)
    assert run.engine.seeds == [line.seed for line in lines]  # type: ignore[attr-defined]
    assert len({line.seed for line in lines}) == len(lines)
    assert [line.seed for line in lines] == [seed_of(7, line.qid, line.sample) for line in lines]
    assert all(0 <= line.seed < 2**31 for line in lines)
    assert not {line.seed for line in lines} & {seed_of(8, line.qid, line.sample) for line in lines}


def test_a_trace_depends_on_its_question_and_number_and_on_no_other(path: Path) -> None:
    """Other company, another order and more samples leave a trace as it is."""
    known = {line.trace_id: line for line in make(path)}
    other = make(path.with_name("other"), generation(ASKED[::-1], wave=7, samples=6))
    assert {line.trace_id for line in other} > known.keys()
    assert [line for line in other if line.trace_id in known] == [
        known[line.trace_id] for line in other if line.trace_id in known
    ]


def test_tokens_are_counted_to_the_last(path: Path) -> None:
    """The scripted engine has one token a byte, and an end of text."""
    run = generation(ASKED)
    for line in make(path, run):
        question = ASKED[int(line.qid[1:])]
        prompt = f"{run.prompt.head}{question.question}\nA. Rest\nB. Insulin\nC. Water\nD. Salt{run.prompt.tail}\n"
        assert line.prompt_tokens == len(prompt.encode())
        assert line.written_tokens == len(line.reasoning.encode()) + 1
        assert line.finish == "end"


def test_what_cannot_be_read_is_null_and_a_cut_is_told(path: Path) -> None:
    lines = make(path, generation(questions(3, "A riddle.", "A silence."), samples=1, max_tokens=30))
    riddle, silence, cut = lines
    assert (riddle.pred, riddle.trace_label, riddle.finish) == (None, None, "end")
    assert (silence.reasoning, silence.pred, silence.trace_label, silence.written_tokens) == (EMPTY, None, None, 1)
    assert (cut.finish, cut.pred, cut.written_tokens) == ("length", None, 30)
    cost = Cost.of(lines)
    assert (cost.traces, cost.failed, cost.unreadable, cost.right, cost.cut) == (3, 0, 3, 0, 1)


def test_what_could_not_be_made_is_told_left_out_and_made_again_when_asked(path: Path, tmp_path: Path) -> None:
    asked = questions(4, "One.", "trouble")
    lines = make(path, generation(asked))
    failed = [line for line in lines if line.finish == FAILED]
    assert [line.qid for line in failed] == ["q1"] * 4
    assert {(line.pred, line.trace_label, line.detail) for line in failed} == {
        (None, None, "the model is out of order")
    }
    write_rows(tmp_path / "pack.questions.jsonl", (row.model_dump(exclude_unset=True) for row in asked))
    assert Counter(labelled.question_id for labelled in read_pack(tmp_path / "pack")) == {"q0": 4, "q2": 4, "q3": 4}
    assert Cost.of(lines).failed == 4
    before = path.read_bytes()
    assert make(path, generation(asked)) == lines  # all done: nothing is made again
    again = generation(asked)
    make(path, again, retry_failed=True)
    assert len(again.engine.seeds) == 6  # type: ignore[attr-defined]  # the two waves that hold them
    assert path.read_bytes() == before
    assert not path.with_name(f"{path.name}.before-retry").exists()


def test_a_model_that_is_gone_ends_the_run(path: Path) -> None:
    with pytest.raises(
        OutageError, match=r"3 waves one after another gave nothing, the last: the model is out of order\."
    ):
        make(path, generation(questions(20, *["trouble"] * 20)))
    assert len(path.read_bytes().splitlines()) == 9


def test_the_price_is_for_a_million_tokens() -> None:
    assert Cost(1, 0, 0, 1, 0, prompt_tokens=2_000_000, written_tokens=500_000).price(0.5, 4.0) == 3.0


# ---- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves", [0, 1, 6])
def test_a_run_that_ended_between_waves_goes_on(path: Path, waves: int) -> None:
    make(path.with_name("whole"))
    make(path, waves=waves)
    make(path)
    assert path.read_bytes() == path.with_name("whole").read_bytes()


def test_a_run_cut_at_any_byte_comes_out_the_same(path: Path) -> None:
    make(path)
    whole = path.read_bytes()
    for end in [*range(0, len(whole), 997), *range(len(whole) - 3, len(whole))]:
        path.write_bytes(whole[:end])
        make(path)
        assert path.read_bytes() == whole


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_file(path: Path) -> None:
    count, moments = 40, random.Random(7)
    command = [sys.executable, str(Path(__file__).with_name("generate_until_killed.py"))]
    whole = path.with_name("whole.jsonl")
    subprocess.run([*command, str(whole), str(count)], check=True, capture_output=True, timeout=60)
    kills = 0
    for attempt in range(4):
        with subprocess.Popen([*command, str(path), str(count)], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            if attempt < 3:
                time.sleep(moments.uniform(0.05, 0.2))
                process.send_signal(signal.SIGKILL)
            kills += process.wait(timeout=60) == -signal.SIGKILL
    assert kills >= 2, "the run was too quick to be killed"
    assert path.read_bytes() == whole.read_bytes()
    assert path.read_bytes().count(b"\n") == 160


@pytest.mark.parametrize(
    "other",
    [
        generation(ASKED, seed=1),
        generation(ASKED, temperature=1.0),
        generation(ASKED, max_tokens=99),
        generation([*ASKED[:1], ASKED[1].model_copy(update={"question": "Another?"}), *ASKED[2:]]),
        generation([ASKED[0].model_copy(update={"answer": "C"}), *ASKED[1:]]),
    ],
    ids=["seed", "temperature", "length", "question", "gold"],
)
def test_a_file_of_another_run_is_refused_and_untouched(path: Path, other: Generation) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(ResumeError, match="was made with other settings"):
        make(path, other)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (generation(ASKED, name="another"), "line 1 is 'q0#scripted#001', not 'q0#another#001'"),
        (generation(ASKED, samples=3), "it holds 20 traces for 15 cases"),
        (generation(ASKED[::-1]), "line 1 is 'q0#scripted#001', not 'q4#scripted#001'"),
    ],
)
def test_traces_of_other_questions_are_named(path: Path, other: Generation, reason: str) -> None:
    make(path)
    with pytest.raises(ResumeError, match=reason):
        make(path, other)


# ---- what is refused before anything is computed ---------------------------------------------------------------------


def test_the_same_trace_is_not_made_several_times() -> None:
    with pytest.raises(ValidationError, match="at temperature 0 all samples of a question are the same"):
        Sampling(temperature=0, samples=2)
    assert Sampling(temperature=0, samples=1).temperature == 0


def test_a_question_that_cannot_be_asked_is_named() -> None:
    with pytest.raises(GenerationError, match="question 'x' has no options"):
        generation([*ASKED, QuestionRow(id="x", question="Why?")]).check()
    with pytest.raises(
        GenerationError, match=r"question 'q5' needs .* tokens with a trace of 1024, and the context has 100000"
    ):
        generation(questions(6, *(row.question for row in ASKED), "long " * 20_000)).check()
    generation(ASKED).check()


def test_a_question_is_never_read_as_part_of_the_prompt(tmp_path: Path) -> None:
    (row,) = questions(1, "What is {question}?")
    run = generation([row])
    text = run.engine.tokenizer.decode(run.prompt.ids(row, run.engine.tokenizer))
    assert text.count("What is {question}?") == 1
    assert text.startswith(run.prompt.head)


@pytest.mark.parametrize("content", ["", "no field", "{question} and {question}", None])
def test_a_prompt_holds_its_field_once(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "prompt.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GenerationError, match=r"exactly once|cannot be read"):
        load_generator_prompt(path)
    path.write_text("Ask: {question}\nThink.")
    assert (load_generator_prompt(path).head, load_generator_prompt(path).tail) == ("Ask: ", "\nThink.")
