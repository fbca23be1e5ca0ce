"""The scripted engine keeps the promises of the protocol."""

import math

import pytest

from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate
from verifier.engines.scripted import ByteTokenizer, Script, ScriptedEngine

TEXT = ByteTokenizer().encode


async def says(script: Script, request: Generate, **fields: object) -> Completion:
    engine = ScriptedEngine(script, **fields)  # type: ignore[arg-type]
    async with engine.open() as (sequence,):
        return await sequence.generate(request)


async def test_it_stops_at_the_first_stop_string() -> None:
    done = await says(lambda _: "one</a>two</b>", Generate(TEXT("x"), 99, stop=("</b>", "</a>")))
    assert (bytes(done.ids), done.finish) == (b"one</a>", Finish.STOP)
    assert len(done.logprobs) == len(done.watched) == 7


async def test_text_without_a_stop_string_ends() -> None:
    done = await says(lambda text: text * 2, Generate(TEXT("ab"), 99))
    assert (done.ids, done.finish) == ((*b"abab", 256), Finish.END)
    assert ByteTokenizer().decode(done.ids) == "abab"


@pytest.mark.parametrize(
    ("context", "length", "finish"), [(100, 3, Finish.LENGTH), (4, 2, Finish.CONTEXT), (5, 3, Finish.LENGTH)]
)
async def test_limits(context: int, length: int, finish: Finish) -> None:
    done = await says(lambda _: "abcdef", Generate(TEXT("xy"), 3), max_context=context)
    assert (len(done.ids), done.finish) == (length, finish)


async def test_no_room_at_all() -> None:
    with pytest.raises(ContextFullError):
        await says(lambda _: "a", Generate(TEXT("xy"), 1), max_context=2)


async def test_beliefs_are_asked_at_every_position() -> None:
    done = await says(
        lambda _: "ab", Generate(TEXT("x"), 9, watch=(49, 48)), beliefs=lambda text: {"1": 0.25} if text == "xa" else {}
    )
    assert done.watched == ((-math.inf, -math.inf), (math.log(0.25), -math.inf), (-math.inf, -math.inf))


async def test_errors_are_raised_and_closed_sequences_refuse() -> None:
    with pytest.raises(EngineError, match="broken"):
        await says(lambda _: EngineError("broken"), Generate(TEXT("x"), 1))
    engine = ScriptedEngine(lambda _: "a")
    async with engine.open(2) as sequences:
        assert len(sequences) == 2
    with pytest.raises(EngineError, match="closed"):
        await sequences[0].generate(Generate(TEXT("x"), 1))


async def test_beliefs_are_asked_with_the_text_before_each_position() -> None:
    asked = list[str]()

    def beliefs(text: str) -> dict[str, float]:
        asked.append(text)
        return {"1": 0.25, "0": 0.0} if text.endswith("é") else {}

    done = await says(lambda _: "é1€", Generate(TEXT("ü"), 99, watch=(ord("1"), ord("0"))), beliefs=beliefs)
    written = "é1€".encode()
    assert asked == [("ü".encode() + written[:n]).decode(errors="replace") for n in range(len(written) + 1)]
    nothing = (-math.inf, -math.inf)
    assert done.watched == (nothing, nothing, (math.log(0.25), -math.inf), *[nothing] * 4)
