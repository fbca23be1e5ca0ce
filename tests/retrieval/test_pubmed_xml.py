import gzip
import tracemalloc
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from retrieval.clean import Cleaner
from retrieval.passage import Passage, SourceError
from retrieval.sources import read
from retrieval.sources.pubmed_markup import plain_text

HEAD = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" "https://dtd.nlm.nih.gov/x/pubmed_250101.dtd">
"""
STRUCTURED = """<Abstract>
  <AbstractText Label="BACKGROUND" NlmCategory="BACKGROUND">Oxygen (O<sub>2</sub>) is <i>often</i> given.</AbstractText>
  <AbstractText Label="METHODS:" NlmCategory="METHODS">We used 10<sup>6</sup> cells &amp; <![CDATA[p < 0.05]]>.</AbstractText>
  <AbstractText Label="UNLABELLED">No label.</AbstractText>
  <AbstractText Label="EMPTY"/>
  <CopyrightInformation>© 2019 The Authors. CC BY 4.0.</CopyrightInformation>
</Abstract>"""


def plain(text: str) -> str:
    return f"<Abstract><AbstractText>{text}</AbstractText></Abstract>"


def article(
    pmid: int,
    abstract: str = "",
    *,
    version: int = 1,
    title: str = "A title.",
    vernacular: str = "",
    languages: tuple[str, ...] = ("eng",),
    date: str = "<Year>2019</Year><Month>May</Month>",
    types: tuple[str, ...] = ("D016428",),
    comments: tuple[str, ...] = (),
    issn: str = "0000-0000",
) -> str:
    """A citation in the order of NLM's DTD, with the parts that mislead a careless reader: other PMIDs, other dates."""
    corrections = "".join(
        f'<CommentsCorrections RefType="{kind}"><RefSource>J. 2020</RefSource><PMID Version="1">999</PMID></CommentsCorrections>'
        for kind in comments
    )
    return f"""<PubmedArticle>
  <MedlineCitation Status="MEDLINE" Owner="NLM" IndexingMethod="Automated">
    <PMID Version="{version}">{pmid}</PMID>
    <DateRevised><Year>2024</Year><Month>01</Month><Day>02</Day></DateRevised>
    <Article PubModel="Print">
      <Journal><ISSN IssnType="Electronic">{issn}</ISSN>
        <JournalIssue CitedMedium="Internet"><PubDate>{date}</PubDate></JournalIssue>
        <Title>The Journal</Title><ISOAbbreviation>J</ISOAbbreviation></Journal>
      <ArticleTitle>{title}</ArticleTitle>
      {abstract}
      {"".join(f"<Language>{language}</Language>" for language in languages)}
      <PublicationTypeList>{"".join(f'<PublicationType UI="{ui}">T</PublicationType>' for ui in types)}</PublicationTypeList>
      {f"<VernacularTitle>{vernacular}</VernacularTitle>" if vernacular else ""}
    </Article>
    <CommentsCorrectionsList>{corrections}</CommentsCorrectionsList>
    <OtherAbstract Type="Publisher" Language="fre"><AbstractText>Un autre.</AbstractText></OtherAbstract>
  </MedlineCitation>
  <PubmedData><ArticleIdList><ArticleId IdType="pubmed">{pmid}</ArticleId></ArticleIdList>
    <ReferenceList><Reference><ArticleIdList><ArticleId IdType="pubmed">5</ArticleId></ArticleIdList></Reference></ReferenceList>
  </PubmedData>
</PubmedArticle>"""


def write(path: Path, *articles: str, deleted: tuple[int, ...] = ()) -> Path:
    gone = "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in deleted)
    tail = f"<DeleteCitation>{gone}</DeleteCitation>" if deleted else ""
    content = f"{HEAD}<PubmedArticleSet>\n{''.join(articles)}{tail}</PubmedArticleSet>\n".encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def found(place: Path) -> list[Passage]:
    return list(read(f"pubmed-xml:{place}"))


def only(folder: Path, citation: str) -> Passage:
    [passage] = found(write(folder / "pubmed25n0001.xml", citation))
    return passage


def test_an_article(tmp_path: Path) -> None:
    assert only(tmp_path, article(12345678, STRUCTURED, title="Oxygen in <i>acute</i> MI.")) == Passage(
        id="12345678",
        title="Oxygen in acute MI.",
        text="BACKGROUND: Oxygen (O2) is often given.\nMETHODS: We used 10^6 cells & p < 0.05.\nNo label.",
        source="PubMed 12345678. The Journal. 2019",
        corpus="pubmed",
        license="© 2019 The Authors. CC BY 4.0.",
        language="eng",
        year=2019,
    )


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("CO<sub>2</sub>, Ca<sup>2+</sup>, CD4<sup>+</sup>CD25<sup>+</sup>, m<sup>2</sup>", "CO2, Ca2+, CD4+CD25+, m2"),
        ("10<sup>-3</sup> and 10<sup><b>9</b></sup>/L", "10^-3 and 10^9/L"),
        ("<b>10</b><sup>6</sup>; log<sub>10</sub>; 2<sub>3</sub>", "10^6; log10; 2_3"),
        ("<sup>14</sup>C and <i>n</i> <u>=</u> 5", "14C and n = 5"),
        ("a<!-- 7 -->b<?pi 8?>c", "abc"),
        ("5&#160;mg &#x3b2; &lt;b&gt;\n   next", "5 mg β <b> next"),
        (
            '<m:math xmlns:m="http://www.w3.org/1998/Math/MathML"><m:mfrac><m:mn>1</m:mn><m:mrow><m:mi>x</m:mi><m:mo>+</m:mo>'
            "<m:mn>2</m:mn></m:mrow></m:mfrac>\n <m:msup><m:mn>10</m:mn><m:mn>6</m:mn></m:msup></m:math> cells",
            "1/(x+2)10^6 cells",
        ),
        (
            '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><msqrt><msub><mi>r</mi><mn>1</mn></msub></msqrt>'
            "<annotation>again</annotation></semantics></math>",
            "√(r_1)",
        ),
    ],
)
def test_markup(markup: str, expected: str) -> None:
    assert plain_text(fromstring(f"<AbstractText>{markup}</AbstractText>")) == expected


def test_titles_and_dates(tmp_path: Path) -> None:
    passage = only(
        tmp_path,
        article(7, title="", vernacular="Über <i>Fieber</i>", date="<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"),
    )
    assert (passage.title, passage.year, passage.text.strip()) == ("Über Fieber", 1998, "")
    assert only(tmp_path, article(7, date="<MedlineDate>Winter</MedlineDate>")).year is None


def test_the_language_of_the_article_is_not_that_of_its_english_abstract(tmp_path: Path) -> None:
    text = (
        "The patients with pneumonia were treated with one of two drugs, and the outcome was the same in both of the groups. "
        * 2
    )
    french = (
        "Les patients sont traités dans cette étude avec une dose de la substance, et le résultat est présenté. " * 2
    )
    write(
        tmp_path / "pubmed25n0001.xml",
        article(1, plain(text), languages=("chi",)),
        article(2, plain(french), languages=("fre",)),
        article(3, plain(text + "Again."), languages=("eng", "fre")),
    )
    passages = found(tmp_path)
    assert [passage.language for passage in passages] == ["", "", ""]
    cleaner = Cleaner()
    assert [passage.id for passage in cleaner.kept(passages)] == ["1", "3"]
    assert cleaner.counts["not_english"] == 1


@pytest.mark.parametrize(
    ("types", "comments", "flags"),
    [
        (("D016428", "D016441"), (), ("retracted",)),
        ((), ("CommentIn", "RetractionIn"), ("retracted",)),
        (("D016441",), ("RetractionIn",), ("retracted",)),
        ((), ("RetractedandRepublishedIn",), ("retracted",)),
        (("D016440",), ("RetractionOf",), ("retraction_notice",)),
        ((), ("ExpressionOfConcernIn",), ("expression_of_concern",)),
        ((), ("ExpressionOfConcernFor", "ErratumIn", "RetractedandRepublishedFrom"), ()),
    ],
)
def test_flags_come_from_declarations(
    tmp_path: Path, types: tuple[str, ...], comments: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    assert only(tmp_path, article(7, types=types, comments=comments, title="RETRACTED: nothing.")).flags == flags


def test_the_newest_file_counts(tmp_path: Path) -> None:
    write(
        tmp_path / "pubmed25n0001.xml.gz",
        article(1, plain("old")),
        article(2, plain("two")),
        article(3, plain("three")),
    )
    write(tmp_path / "pubmed25n0002.xml", article(1, plain("newer")), article(4, plain("four")), deleted=(3,))
    write(tmp_path / "pubmed25n0003.xml.gz", article(1, plain("newest")), deleted=(4, 77))
    write(tmp_path / "other.xml", article(9))
    assert [(p.id, p.text) for p in found(tmp_path)] == [("1", "newest"), ("2", "two")]


def test_an_article_may_come_back_after_its_deletion(tmp_path: Path) -> None:
    write(tmp_path / "pubmed25n0001.xml", article(1, plain("old")), deleted=(1,))
    write(tmp_path / "pubmed25n0002.xml", article(1, plain("back")))
    assert [p.text for p in found(tmp_path)] == ["back"]


def test_within_a_file_the_highest_version_counts_then_the_last(tmp_path: Path) -> None:
    write(
        tmp_path / "pubmed25n0001.xml",
        article(1, plain("version 2"), version=2),
        article(1, plain("version 1")),
        article(2, plain("first")),
        article(2, plain("second")),
    )
    assert [p.text for p in found(tmp_path)] == ["version 2", "second"]


BOMB = """<!DOCTYPE PubmedArticleSet [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<PubmedArticleSet><PubmedArticle>&b;</PubmedArticle></PubmedArticleSet>"""
FILE = """<!DOCTYPE PubmedArticleSet [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<PubmedArticleSet><PubmedArticle>&x;</PubmedArticle></PubmedArticleSet>"""
PARAMETER = """<!DOCTYPE PubmedArticleSet [<!ENTITY % x SYSTEM "http://localhost/x.dtd"> %x;]><PubmedArticleSet/>"""
DEEP = f"<PubmedArticleSet>{article(6, plain('<b>' * 50_000 + '</b>' * 50_000))}</PubmedArticleSet>"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (BOMB, "declares the entity 'a'"),
        (FILE, "declares the entity 'x'"),
        (PARAMETER, "declares the entity 'x'"),
        (DEEP, "PubMed 6: its elements are nested too deeply"),
        ("", "not well-formed XML, or cut off"),
        *(
            (f'<?xml version="1.0" encoding="{name}"?><PubmedArticleSet/>', "not well-formed XML, or cut off")
            for name in ("rot13", "zlib", "utf-7", "idna", "none-such")
        ),
        ("<PubmedArticleSet>", "not well-formed XML, or cut off"),
        ("<PubmedArticleSet>&nbsp;</PubmedArticleSet>", "not well-formed XML, or cut off"),
        (f"<PubmedArticleSet>{article(1)[:-9]}", "not well-formed XML, or cut off"),
        ("<html/>", "expected a PubmedArticleSet, found a html"),
        ("<PubmedArticleSet><PubmedBookArticle/></PubmedArticleSet>", "element 1 is a PubmedBookArticle"),
        ("<PubmedArticleSet><PubmedArticle/></PubmedArticleSet>", "an article has no MedlineCitation/PMID"),
        (f"<PubmedArticleSet>{article(0)}</PubmedArticleSet>", "expected a PMID, found '0'"),
        (f"<PubmedArticleSet>{article(10**20)}</PubmedArticleSet>", "expected a PMID, found '1000"),
        (
            '<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">3</PMID></MedlineCitation></PubmedArticle>'
            "</PubmedArticleSet>",
            "PubMed 3: has no Article",
        ),
    ],
)
def test_hostile_and_damaged_files_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "pubmed25n0001.xml").write_text(content)
    with pytest.raises(SourceError, match=rf"pubmed25n0001\.xml.*{complaint}|^{complaint}"):
        found(tmp_path)


def test_a_truncated_gz_file(tmp_path: Path) -> None:
    path = write(tmp_path / "pubmed25n0001.xml.gz", *(article(n, plain(f"{n} " * 50)) for n in range(1, 400)))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(SourceError, match=r"pubmed25n0001\.xml\.gz: cannot be read: Compressed file ended"):
        found(tmp_path)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no pubmed"):
        found(tmp_path)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        path = write(tmp_path / f"pubmed{count}.xml", *(article(n, plain("word " * 400)) for n in range(1, count + 1)))
        tracemalloc.start()
        try:
            assert sum(1 for _ in read(f"pubmed-xml:{path}")) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(20)  # what is imported and cached once
    assert peak(2000) < peak(200) + 500_000  # of 1.8 megabytes more text: only the PMIDs are remembered


@pytest.mark.parametrize(
    ("issn", "title", "flags"),
    [
        ("1469-493X", "WITHDRAWN: Zinc for the common cold.", ("withdrawn",)),
        ("1469-493X", "Zinc for the common cold.", ()),
        ("1469-493X", "Effects of a WITHDRAWN: drug.", ()),
        ("0000-0000", "WITHDRAWN: Zinc for the common cold.", ()),
    ],
)
def test_a_review_that_cochrane_has_withdrawn_is_flagged(
    tmp_path: Path, issn: str, title: str, flags: tuple[str, ...]
) -> None:
    assert only(tmp_path, article(1, plain("Text."), title=title, issn=issn)).flags == flags


def test_a_version_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    long = article(1, plain("An abstract.")).replace('Version="1"', f'Version="{"9" * 5000}"')
    path = write(tmp_path / "pubmed25n0001.xml", long, article(1, plain("The other."), version=2))
    assert [passage.text for passage in read(f"pubmed-xml:{path}")] == ["The other."]
