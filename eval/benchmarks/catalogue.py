"""The benchmarks that are known by name: where they are published, under which licence, and how many rows they have.

No commit is written here: none could be verified where this was written. `fetch` resolves the revision that it is asked for to a
commit, reads at exactly that commit, and records it, so that the next fetch can be pinned to it. Licences are the publishers' own
words about the data set; what the hub's card says is recorded beside them when the hub is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from eval.benchmarks import adapters
from eval.benchmarks.schema import Row


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark."""

    name: str
    what: str
    rows: int
    licence: str
    homepage: str
    adapter: Callable[[adapters.Columns, int, str], Row]
    split: str  # as the hub and the pack name it
    repository: str | None  # on the hub; None where the authors have none there
    configs: tuple[str | None, ...] = (None,)  # of the repository, read one after another
    subjects: frozenset[str] = frozenset()  # of a file that holds more: the values of its column `subject`
    chosen_by: str = ""  # file of ids that makes this split of a larger set; given by hand


_MMLU_MED = (
    "anatomy",
    "clinical_knowledge",
    "college_biology",
    "college_medicine",
    "medical_genetics",
    "professional_medicine",
)
_PUBMEDQA = {
    "licence": "MIT",
    "homepage": "https://github.com/pubmedqa/pubmedqa",
    "adapter": adapters.pubmedqa,
    "split": "train",
    "repository": "qiaojin/PubMedQA",
    "configs": ("pqa_labeled",),
}
_MEDEC = {
    "licence": "CC BY 4.0",
    "homepage": "https://github.com/abachaa/MEDEC",
    "adapter": adapters.medec,
    "repository": None,
}
_EVERY = (
    Benchmark(
        "medqa",
        "MedQA: USMLE questions with four options, test split",
        1273,
        "MIT",
        "https://github.com/jind11/MedQA",
        adapters.medqa,
        "test",
        "GBaker/MedQA-USMLE-4-options",
    ),
    Benchmark(
        "medmcqa",
        "MedMCQA: Indian entrance examinations, development split (the test split has no public answers)",
        4183,
        "MIT",
        "https://github.com/medmcqa/medmcqa",
        adapters.medmcqa,
        "validation",
        "openlifescienceai/medmcqa",
    ),
    Benchmark(
        "mmlu-med",
        "MMLU: its six medical subjects, test split",
        1089,
        "MIT",
        "https://github.com/hendrycks/test",
        adapters.mmlu,
        "test",
        "cais/mmlu",
        _MMLU_MED,
        frozenset(_MMLU_MED),
    ),
    Benchmark(
        "medxpertqa",
        "MedXpertQA Text: expert-level questions with ten options, test split",
        2450,
        "MIT",
        "https://github.com/TsinghuaC3I/MedXpertQA",
        adapters.medxpertqa,
        "test",
        "TsinghuaC3I/MedXpertQA",
        ("Text",),
    ),
    Benchmark("pubmedqa", "PubMedQA: all labelled questions, with their abstracts", 1000, **_PUBMEDQA),  # type: ignore[arg-type]
    Benchmark(
        "pubmedqa-test",
        "PubMedQA: the authors' test split of the labelled questions",
        500,
        chosen_by="test_ground_truth.json",
        **_PUBMEDQA,  # type: ignore[arg-type]
    ),
    Benchmark(
        "medec",
        "MEDEC: clinical texts of the MS collection with one planted error or none, validation split",
        574,
        split="validation",
        **_MEDEC,  # type: ignore[arg-type]
    ),
    Benchmark("medec-test", "MEDEC: the same, test split", 597, split="test", **_MEDEC),  # type: ignore[arg-type]
)
#: By name, in the order in which they are listed.
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({benchmark.name: benchmark for benchmark in _EVERY})
