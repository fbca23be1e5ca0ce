import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from retrieval.passage import Passage, SourceError
from retrieval.sources import jsonl, open_medicine, read, starter
from retrieval.textstore import passage_line

needs_open_medicine = pytest.mark.skipif(find_spec("open_medicine") is None, reason="open-medicine is not installed")


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def test_starter_is_complete_and_ordered() -> None:
    found = list(starter())
    assert len(found) > 250
    assert len({passage.id for passage in found}) == len(found)
    assert {passage.corpus for passage in found} == {"starter"}
    assert all(passage.title and passage.topic and passage.source and len(passage.text) > 200 for passage in found)
    assert found == list(read("starter"))
    assert found[0].topic == "antimicrobials"


@needs_open_medicine
def test_open_medicine_digests() -> None:
    found = list(open_medicine())
    assert len(found) > 1000
    assert len({passage.id for passage in found}) == len(found)
    assert all("not verified by clinicians" in passage.source and "doi:10." in passage.source for passage in found)
    assert all(": " in passage.title for passage in found)
    words = sorted(len(re.findall(r"[^\s|]+", passage.text)) for passage in found)
    assert words[len(words) // 2] > 50
    assert words[-1] < 260
    assert not any("OpenMedicine Calculator" in passage.text for passage in found)
    # No passage opens in the middle of a table: a row that starts one is its head, with the rule below.
    assert all(re.match(r"\|[ :]*-", p.text.splitlines()[1]) for p in found if p.text.startswith("|"))
    assert found == list(read("open-medicine"))


def test_field_names_of_common_corpora(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {"id": "a", "title": "T", "text": "one", "topic": "x", "source": "s", "other": 1},
        {"_id": "b", "contents": '"T"\ntwo'},
        "",
        {"id": 3, "title": None, "content": "three", "contents": "T. three"},
    )
    found = list(jsonl(path))
    assert [(p.id, p.title, p.text, p.corpus) for p in found] == [
        ("a", "T", "one", "mine"),
        ("b", "", '"T"\ntwo', "mine"),
        ("3", "", "three", "mine"),
    ]
    assert (found[0].topic, found[0].source) == ("x", "s")


def test_provenance(tmp_path: Path) -> None:
    declared = {"license": "CC BY 4.0", "language": "en", "year": 2019, "flags": ["retracted", "expression_of_concern"]}
    path = write(
        tmp_path / "a.jsonl",
        {"id": "a", "text": "x", **declared},
        {"id": "b", "text": "x", "year": None},
        {"id": "c", "text": "x", "year": "1998"},
    )
    [first, second, third] = jsonl(path)
    assert (first.license, first.language, first.year) == ("CC BY 4.0", "en", 2019)
    assert third.year == 1998
    assert first.flags == ("retracted", "expression_of_concern")
    assert (second.license, second.language, second.year, second.flags) == ("", "", None, ())
    # What declares nothing is written as it was before there was anything to declare.
    assert passage_line(second) == b'{"corpus":"a","id":"b","source":"","text":"x","title":"","topic":""}\n'
    assert Passage.model_validate_json(passage_line(first)) == first


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "a", "text": "one"}\n'))
    assert [(p.text, p.corpus) for p in read(str(path))] == [("one", "mine")]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(SourceError, match=r"mine\.jsonl\.gz: cannot be read"):
        list(jsonl(path))


def test_a_record_without_text_is_left_to_the_build_to_count(tmp_path: Path) -> None:
    [passage] = jsonl(write(tmp_path / "a.jsonl", {"id": "a", "text": ""}))
    assert not passage.text.strip()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{oops", r"line 2: expected a JSON object in UTF-8"),
        ("[1]", r"line 2: expected a JSON object, found list"),
        ({"text": "x"}, r"line 2, field id: missing; expected one of id, _id"),
        ({"id": "x"}, r"line 2, field text: missing; expected one of text, content, contents"),
        ({"_id": True, "text": "x"}, r"line 2, field _id: .*string.*True"),
        ({"id": "", "text": "x"}, r"line 2, field id: .*at least 1"),
        ({"id": "x", "contents": 5}, r"line 2, field contents: .*string.*5"),
        ({"id": "x", "text": None}, r"line 2, field text: .*string.*None"),
        ({"id": "x", "text": "x", "title": ["t"]}, r"line 2, field title: .*string"),
        ({"id": "x", "text": "\ud800"}, r"line 2, field text: "),
        ({"id": "x", "text": "x", "year": "May 2019"}, r"line 2, field year: .*integer.*'May 2019'"),
        ({"id": "x", "text": "x", "flags": "retracted"}, r"line 2, field flags: .*tuple.*'retracted'"),
        ({"id": "x", "text": "x", "flags": ["Retracted"]}, r"line 2, field flags: .*'retracted', .*found 'Retracted'"),
        ({"id": "ok", "text": "x"}, r"line 2, field id: 'ok' occurs a second time"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, complaint: str) -> None:
    path = write(tmp_path / "bad.jsonl", {"id": "ok", "text": "fine"}, line)
    with pytest.raises(SourceError, match=rf"bad\.jsonl, {complaint}"):
        list(jsonl(path))


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes('{"id": "a", "text": "é"}'.encode("latin-1"))
    with pytest.raises(SourceError, match=r"latin\.jsonl, line 1: expected a JSON object in UTF-8"):
        list(jsonl(path))


def test_missing_file_and_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.jsonl: cannot be read"):
        list(read(str(tmp_path / "absent.jsonl")))
    with pytest.raises(SourceError, match="expected starter, open-medicine, or the path"):
        read("pubmed")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[" * 100_000, "line 1: expected a JSON object in UTF-8: it is nested too deeply"),
        ('{"a":' * 100_000, "line 1: expected a JSON object in UTF-8: it is nested too deeply"),
        ('{"id": "a", "text": "b", "year": ' + "9" * 5000 + "}", "line 1: expected a JSON object"),
        ('{"id": "a", "text": "b", "year": "' + "9" * 5000 + '"}', "line 1, field year"),
        ('{"id": ' + "[" * 900 + "]" * 900 + ', "text": "b"}', "line 1, field id"),
    ],
)
def test_lines_out_of_all_measure(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint):
        list(jsonl(write(tmp_path / "odd.jsonl", line)))


def test_a_line_is_read_no_further_than_a_passage_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.sources.json_lines.LONGEST_LINE", 100)
    path = write(tmp_path / "long.jsonl", {"id": "a", "text": "b"}, {"id": "c", "text": "d" * 100})
    with pytest.raises(SourceError, match="line 2: longer than 100 bytes"):
        list(jsonl(path))
