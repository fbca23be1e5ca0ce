"""A generator whose words follow from what it reads and from its seed. Importable from a subprocess as well."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from eval.generate import Generation, Sampling, load_generator_prompt
from verifier.engines.base import Completion, EngineError, Generate
from verifier.engines.scripted import ScriptedEngine
from verifier.packs import QuestionRow


@dataclass(slots=True)
class SeededEngine(ScriptedEngine):
    """Writes what its script says with an option that the request's seed picks: samples differ as real ones do."""

    seeds: list[int] = field(default_factory=list)

    async def answer(self, request: Generate) -> Completion:
        self.seeds.append(request.seed)

        def says(text: str) -> str | EngineError:
            written = self.script(text)
            letter = "ABCD"[zlib.crc32(f"{request.seed} {text}".encode()) % 4]
            return written if isinstance(written, EngineError) else written.replace("{}", letter)

        return await ScriptedEngine(says, max_context=self.max_context, delay_s=self.delay_s).answer(request)


def reasons(text: str) -> str | EngineError:
    """A trace; a question about `trouble` breaks the engine, one about `silence` gets none, one about `riddle` no answer."""
    if "trouble" in text:
        return EngineError("the model is out of order")
    if "silence" in text:
        return ""
    return (
        "I cannot tell which."
        if "riddle" in text
        else f"Reasons \u2028{zlib.crc32(text.encode())}. The answer is {{}}."
    )


def questions(count: int, *texts: str) -> list[QuestionRow]:
    asked = [*texts, *(f"Question {number}\u2028?" for number in range(len(texts), count))]
    options = {"A": "Rest", "B": "Insulin", "C": "Water", "D": "Salt"}
    return [QuestionRow(id=f"q{i}", question=text, options=options, answer="B") for i, text in enumerate(asked)]


def generation(
    asked: Sequence[QuestionRow], wave: int = 3, delay_s: float = 0.0, name: str = "scripted", **sampling: float
) -> Generation:
    engine = SeededEngine(reasons, max_sequences=wave, delay_s=delay_s)
    how = Sampling.model_validate({"samples": 4, **sampling})
    return Generation(engine, name, load_generator_prompt(), how, asked)
