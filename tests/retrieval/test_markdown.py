from hypothesis import example, given
from hypothesis import strategies as st

from retrieval.sources.markdown import split_markdown

DOCUMENT = """# The Title

Before any section.

## First

Give these:
- **Alpha** 1 mg
  - with food

  and water
- Beta 2 mg
wrapped

---

### Table

| Drug | Dose |
|---|---|
| A | 1 |
| B | 2 |

```
# not a heading
| not | a table |

  --> step
```

## Empty

## Last

Done.
"""


def test_headings_become_sections_and_empty_ones_vanish() -> None:
    title, sections = split_markdown(DOCUMENT)
    assert title == "The Title"
    assert [section.heading for section in sections] == ["", "First", "Last"]
    assert sections[0].texts == ("Before any section.",)


def test_blocks_keep_their_shape() -> None:
    _, sections = split_markdown(DOCUMENT)
    assert sections[1].texts == (
        "Give these:\n- Alpha 1 mg\n  - with food\n  and water\n- Beta 2 mg\nwrapped\n\n"
        "Table:\n| Drug | Dose |\n|---|---|\n| A | 1 |\n| B | 2 |\n\n"
        "# not a heading\n| not | a table |\n\n  --> step",
    )


def test_a_long_table_is_cut_between_rows_and_every_part_has_its_head() -> None:
    rows = "\n".join(f"| drug{number} | {number} mg daily |" for number in range(40))
    _, sections = split_markdown(f"# T\n## S\n| Drug | Dose |\n|---|---|\n{rows}\n", max_words=30)
    texts = sections[0].texts
    assert len(texts) > 3
    assert all(text.startswith("| Drug | Dose |\n|---|---|\n| drug") for text in texts)
    assert [line for text in texts for line in text.splitlines()[2:]] == rows.splitlines()


def test_a_list_is_cut_between_items_and_its_introduction_stays_with_the_first() -> None:
    items = "\n".join(f"- item {number} with a few more words\n  - detail {number}" for number in range(10))
    _, sections = split_markdown(f"# T\n## S\n{'word ' * 28}\n\nChoose one:\n{items}\n", max_words=30)
    texts = sections[0].texts
    assert texts[1].startswith("Choose one:\n- item 0")
    for number in range(10):
        assert any(f"item {number} with" in text and f"detail {number}" in text for text in texts)


def test_a_new_subsection_starts_a_passage_and_crumbs_join_the_one_before() -> None:
    half = "word " * 20
    _, sections = split_markdown(f"# T\n## S\n{half}\n### Sub\n{half}\n\ntail end.\n", max_words=40)
    assert [text.split()[0] for text in sections[0].texts] == ["word", "Sub:"]
    assert sections[0].texts[-1].endswith("tail end.")


def test_a_heading_at_the_very_end_is_kept() -> None:
    assert split_markdown("# T\n## S\ntext\n### Why?")[1][0].texts == ("text\n\nWhy?",)


LINES = st.sampled_from(
    ["", "# T", "## S", "### H", "- item", "  more", "| a | b |", "|---|---|", "```", "word", "so:", "---"]
)


@example(["```", "", "", ""], 2)  # a fence around nothing
@given(st.lists(LINES, max_size=40), st.integers(2, 60))
def test_no_word_is_lost_and_no_passage_is_empty(lines: list[str], max_words: int) -> None:
    _, sections = split_markdown("\n".join(lines), max_words)
    texts = [text for section in sections for text in section.texts]
    assert all(text.strip() for text in texts)
    joined = " ".join(texts)
    for word in ("word", "item", "so:"):
        assert joined.count(word) == sum(line.count(word) for line in lines)
