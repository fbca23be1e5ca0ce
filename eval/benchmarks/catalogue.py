"""The benchmarks that are known by name: where they are published, under which licence, and how many rows they have.

The commits were not fetched by us: they are what several public projects record in their pins and hub cache paths. A wrong one
cannot load other data, it fails. Where no such record was found the revision is None, and the hub is refused until one is given.
Licences are the publishers' own words about the data set; what the hub's card says is recorded beside them when the hub is read.
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
    repository: str | None  # on the hub
    revision: str | None = None  # commit of the repository; None where no public record of one was found
    note: str = ""
    hub_split: str = ""  # where the repository names the split otherwise
    configs: tuple[str | None, ...] = (None,)  # of the repository, read one after another
    subjects: frozenset[str] = frozenset()  # of a file that holds more: the values of its column `subject`
    chosen_by: str = ""  # file of ids that makes this split of a larger set; given by hand

    @property
    def split_there(self) -> str:
        """What the repository calls the split."""
        return self.hub_split or self.split


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
    "revision": "9001f2853fb87cab8d220904e0de81ac6973b318",
    "configs": ("pqa_labeled",),
}
_MEDEC = {
    "licence": "CC BY 4.0",
    "homepage": "https://github.com/abachaa/MEDEC",
    "adapter": adapters.medec,
    "repository": "sauravlmx/MEDEC-MS",
    "note": "the repository is a copy made by others; the authors' own is github.com/abachaa/MEDEC, folder MEDEC-MS, which a "
    "public project pins at 49c59dcba43a7af8717590a405b11a57f42b04df",
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
        "0fb93dd23a7339b6dcd27e241cb9b5eca62d4d18",
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
        "91c6572c454088bf71b679ad90aa8dffcd0d5868",
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
        "c30699e8356da336a370243923dbaf21066bb9fe",
        configs=_MMLU_MED,
        subjects=frozenset(_MMLU_MED),
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
        "7e7c465a68eb2b866926bfa59c8c9d17a8daba65",
        configs=("Text",),
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
        hub_split="validation_ms",
        **_MEDEC,  # type: ignore[arg-type]
    ),
    Benchmark("medec-test", "MEDEC: the same, test split", 597, split="test", hub_split="test_ms", **_MEDEC),  # type: ignore[arg-type]
)
#: By name, in the order in which they are listed.
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({benchmark.name: benchmark for benchmark in _EVERY})
