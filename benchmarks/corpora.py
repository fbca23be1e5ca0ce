"""What reading and cleaning cost: memory of the fingerprints, passages a second.

    python -m benchmarks.corpora [--fingerprints 24000000] [--articles 30000] [CORPUS ...]

- `fingerprints`: that many are put into one table, in a process of its own, and its resident memory is read off;
- `pubmed-xml`: a file of that many made-up articles, of the size of a baseline file, is read;
- each CORPUS, by a name that `medverify index build` takes, is read and cleaned.

Seconds are of the processor, so that a busy machine does not count.
"""

import argparse
import gzip
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path

from retrieval.clean import Cleaner, CleaningOptions
from retrieval.fingerprints import Fingerprints
from retrieval.sources import read

_ARTICLE = """<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">{pmid}</PMID><Article>
<Journal><JournalIssue><PubDate><Year>2019</Year></PubDate></JournalIssue><Title>A Journal</Title></Journal>
<ArticleTitle>A title of ten words that says what was found out.</ArticleTitle><Abstract>
<AbstractText Label="METHODS">{text}</AbstractText><AbstractText Label="RESULTS">10<sup>6</sup> {text}</AbstractText></Abstract>
<AuthorList>{authors}</AuthorList><Language>eng</Language></Article><MeshHeadingList>{mesh}</MeshHeadingList></MedlineCitation>
<PubmedData><ReferenceList>{references}</ReferenceList></PubmedData></PubmedArticle>
"""
_AUTHOR = "<Author><LastName>Name</LastName><ForeName>First</ForeName><Initials>F</Initials></Author>"
_MESH = '<MeshHeading><DescriptorName UI="D000001" MajorTopicYN="N">Humans</DescriptorName></MeshHeading>'
_REFERENCE = '<Reference><ArticleIdList><ArticleId IdType="pubmed">1</ArticleId></ArticleIdList></Reference>'


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fingerprints", type=int, default=24_000_000)
    parser.add_argument("--articles", type=int, default=30_000)
    parser.add_argument("corpora", nargs="*", default=["starter"])
    options = parser.parse_args()
    print("| what | number | seconds | a second | resident MiB, before and at its peak |\n|---|---|---|---|---|")
    if options.fingerprints:
        _alone(_fingerprints, options.fingerprints)
    if options.articles:
        with tempfile.TemporaryDirectory() as folder:
            _write_articles(Path(folder) / "pubmed25n0001.xml.gz", options.articles)
            _alone(_read, f"pubmed-xml:{folder}", None)
    for name in options.corpora:
        _alone(_read, name, CleaningOptions())
        _alone(_read, name, CleaningOptions(near_duplicates=True))


def _alone(job, *arguments) -> None:  # type: ignore[no-untyped-def]
    """Run a job in a new process, so that its peak of memory is its own."""
    process = multiprocessing.get_context("spawn").Process(target=job, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{job.__name__}{arguments} failed")


def _fingerprints(count: int) -> None:
    before, start = _peak_mib(), time.process_time()
    table, draw = Fingerprints(), random.Random(1)
    for _ in range(count):
        table.add(draw.getrandbits(64) or 1)
    _row("fingerprints", len(table), time.process_time() - start, before)
    print(f"| its table | {table.nbytes / 2**20:.0f} MiB | | {table.nbytes / count:.1f} bytes each | |")


def _read(name: str, options: CleaningOptions | None) -> None:
    before, start = _peak_mib(), time.process_time()
    if options is None:
        _row(f"read {name.partition(':')[0]}", sum(1 for _ in read(name)), time.process_time() - start, before)
        return
    cleaner = Cleaner(options)
    kept = sum(1 for _ in cleaner.kept(read(name)))
    dropped = ", ".join(f"{count} {reason}" for reason, count in cleaner.counts.items() if count) or "none"
    how = "near-duplicates too" if options.near_duplicates else "defaults"
    total = kept + sum(cleaner.counts.values())
    _row(f"read and clean {Path(name).name} ({how}; left out: {dropped})", total, time.process_time() - start, before)


def _row(what: str, number: int, seconds: float, before: float) -> None:
    print(
        f"| {what} | {number} | {seconds:.1f} | {number / seconds:.0f} | {before:.0f}, {_peak_mib():.0f} |", flush=True
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write_articles(path: Path, count: int) -> None:
    text = "The patients were treated with one of two drugs, and the outcome was the same in both groups. " * 8
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>')
        for pmid in range(1, count + 1):
            parts = {"authors": _AUTHOR * 6, "mesh": _MESH * 12, "references": _REFERENCE * 30}
            file.write(_ARTICLE.format(pmid=pmid, text=text, **parts))
        file.write("</PubmedArticleSet>")


if __name__ == "__main__":
    main()
