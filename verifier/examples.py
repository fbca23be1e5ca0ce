"""Three cases written for this project: what a newcomer sees judged first."""

from importlib import resources

from verifier.types import Case


def example_cases() -> list[Case]:
    """One trace that is right, one with a wrong mechanism, one with an outdated claim; their ids say which."""
    text = resources.files("verifier").joinpath("examples.jsonl").read_text(encoding="utf-8")
    return [Case.model_validate_json(line) for line in text.splitlines()]
