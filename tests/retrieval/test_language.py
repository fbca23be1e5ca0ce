import pytest

from retrieval.language import is_english
from retrieval.sources import starter

FRENCH = (
    "Nous avons étudié les effets de la metformine chez des patients atteints de diabète. Les résultats sont présentés "
    "dans cet article, et la dose est adaptée avec une grande prudence."
)
GERMAN = (
    "Die Patienten wurden mit Metformin behandelt. Das Ergebnis der Studie ist nicht eindeutig, und bei den meisten "
    "Kranken wurde eine Besserung von kurzer Dauer gesehen."
)
SPANISH = (
    "El estudio se realizó con los pacientes del hospital. La dosis fue de una tableta por día, y las complicaciones "
    "fueron leves en este grupo de enfermos para el que no se conocen alternativas."
)
NORWEGIAN = (
    "Pasientene fikk behandling med metformin, og det ble funnet at dosen ikke var tilstrekkelig. Vi mener at den som er "
    "ansvarlig for behandlingen, må vurdere det på nytt."
)
CHINESE = "目的:探讨二甲双胍治疗2型糖尿病的疗效和安全性。方法:选取患者100例。结果:HbA1c下降1.2%。"
RUSSIAN = "Цель исследования: оценить эффективность метформина у больных сахарным диабетом 2 типа (HbA1c)."


@pytest.mark.parametrize("text", [FRENCH, GERMAN, SPANISH, NORWEGIAN, CHINESE, RUSSIAN])
def test_other_languages_are_seen(text: str) -> None:
    assert not is_english(text, "")


@pytest.mark.parametrize(
    "text",
    [
        "TNF, IL-6, IL-1β, IFN-γ, NF-κB, STAT3, JAK2, BRCA1, BRCA2, TP53, EGFR, HER2, ALK, ROS1, KRAS, NRAS, BRAF",
        "Metformin 500 mg BID; glipizide 5 mg QD; insulin glargine 10 U QHS; lisinopril 10 mg QD",
        "α, β, γ, δ, ε",
        "Calcium: https://ods.od.nih.gov/a https://ods.od.nih.gov/b https://ods.od.nih.gov/c https://ods.od.nih.gov/d",
        "Sjögren's and Behçet's disease were described by Sjögren and Behçet; Ménière's by Ménière.",
        "",
        "1.5 2.5 3.5",
    ],
)
def test_what_has_no_language_stays(text: str) -> None:
    assert is_english(text, "")


@pytest.mark.parametrize("declared", ["en", "EN", "eng", "en-GB", "en_US"])
def test_what_is_declared_decides(declared: str) -> None:
    assert is_english(FRENCH, declared)
    assert not is_english("The patients were treated with metformin.", "fre")


def test_every_starter_passage_is_english() -> None:
    assert all(is_english(passage.text, passage.language) for passage in starter())
