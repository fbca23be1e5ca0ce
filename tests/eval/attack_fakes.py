"""A few labelled traces to attack, and judges that believe what they read."""

import re
from collections.abc import Sequence
from typing import Literal

from configs.settings import JudgeSettings
from eval.attack.attack import Attack, Base
from eval.attack.families import FAMILIES
from eval.attack.suite import bases, make_attacks
from retrieval.passage import Hit, Passage
from verifier.engines.scripted import Script, ScriptedEngine
from verifier.judge import Judge, Mode
from verifier.packs import LabelledCase
from verifier.prompt import load_prompt
from verifier.types import Case

_DRUGS = ("Metformin", "Warfarin", "Digoxin", "Lithium", "Heparin", "Insulin")
EVERY_VARIANT = 99


def labelled(number: int, label: Literal[0, 1] | None) -> LabelledCase:
    """Question `number`, answered with its right option A or with the wrong option B."""
    options = {key: f"{_DRUGS[(number + place) % 6]} {key.lower()}" for place, key in enumerate("ABC")}
    answer = "A" if label == 1 else "B"
    trace = (
        f"The patient of case {number} has renal impairment. Potassium is 5.{number} mmol/l and p < 0.05.\n"
        f"{options[answer]} acts on the kidney within hours. The answer is {answer}."
    )
    case = Case(id=f"q{number}#{label}", question=f"Which drug fits case {number}?", options=options, trace=trace)
    return LabelledCase(case, label, f"q{number}", "fake", answer, "A")


POOL = [labelled(number, label) for number in range(6) for label in (0, 1, None)]
BASES: list[Base] = bases([labelled(number, 1 if number % 2 else 0) for number in range(6)], POOL)


def all_attacks(seed: int = 0, bases: Sequence[Base] = BASES) -> list[Attack]:
    """Every variant of every family on every base that it applies to."""
    return make_attacks(bases, FAMILIES.values(), EVERY_VARIANT, seed)


class TwoBooks:
    """Finds the same two passages for every query."""

    digest = "2" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        passages = (
            Passage(id="b1", title="Kidney", text="It filters."),
            Passage(id="b2", title="Liver", text="It stores."),
        )
        return [Hit(passage=p, score=1.0 / rank, rank=rank) for rank, p in enumerate(passages[:k], start=1)]

    async def aclose(self) -> None:
        """Nothing to close."""


def sure(text: str) -> dict[str, float]:
    """Beliefs that follow the label which a gullible script is about to write."""
    if not text.endswith("<answer>"):
        return {}
    one = 0.9 if believes_it(text) else 0.2
    return {"1": one, "0": 1 - one}


def believes_it(text: str) -> bool:
    """A judge that trusts titles and long texts and nothing else."""
    trace = text.split("Reasoning to check:", 1)[1]
    return bool(re.search(r"chief of medicine|guideline", trace)) or len(trace) > 1500


def gullible(text: str) -> str:
    """Searches once, then answers as it believes."""
    if "[1] " not in text.split("Reasoning to check:", 1)[1]:
        return "<think>Hm.</think><search>kidney</search>"
    return f"<think>So.</think><answer>{int(believes_it(text))}</answer>"


def judge_of(script: Script = gullible, mode: Mode = "free", wave: int = 4, **settings: object) -> Judge:
    engine = ScriptedEngine(script, sure, max_sequences=wave)
    prompt = load_prompt("judge" if mode == "free" else "guided")
    return Judge(engine, TwoBooks(), prompt, mode, JudgeSettings.model_validate(settings))
