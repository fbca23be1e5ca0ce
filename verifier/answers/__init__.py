"""Reading the final answer of a reasoning trace."""

from verifier.answers.extract import EXTRACTOR_VERSION, extract_answer

__all__ = ["EXTRACTOR_VERSION", "extract_answer"]
