"""Whether a text is English: by what it declares, else by its script and its commonest words.

The check is made to keep: it calls a text foreign only on evidence, so that lists of genes, doses or drug names, which
have no common words at all, stay. It needs no model.
"""

import re
from collections import Counter
from types import MappingProxyType

_ENGLISH_CODES = frozenset({"en", "eng"})
_SAMPLE = 2000  # characters; an abstract shows its language long before its end
_WORD = re.compile(r"[^\W\d_]+")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN_OR_GREEK = re.compile("[a-z\u00c0-\u024f\u0370-\u03ff\u1e00-\u1fff]")  # Greek letters are names of quantities
_PLAINLY_ENGLISH, _FOREIGN = 0.15, 0.1  # shares of the words; English prose has about a third

# Words that are frequent in one language and rare in English prose. Words shared with English (a, an, in, die, on, as,
# me, pour, sur, or) are left out of both sides.
_STOP_WORDS = MappingProxyType(
    {
        "english": "the of and to with was were is are for by from that this which at be has have had not but or its their",
        "french": "le la les des du et est une dans avec qui que sont aux cette été ont nous chez ces",
        "german": "der das und den dem mit von ist eine einer nicht bei wurde wurden auf zu sind werden nach auch",
        "spanish": "el los las del que una con por para se fue como es su entre al pacientes este fueron",
        "portuguese": "os uma com não que foi dos das em ao pelo pela são mais foram um estudo seu",
        "italian": "il di che della del per con una sono nel gli dei alla è stato nella delle si è dal",
        "dutch": "het een van de en met zijn voor werd niet bij aan worden werden door dat naar",
        "polish": "się nie jest na że do przez oraz u są był było po ze chorych leczenia",
        "scandinavian": "og det av til som ikke med er för att och på den ett inte var hos eller ved",
        "turkish": "ve bir bu ile için olarak olan daha gibi çok hastaların olgu sonra",  # noqa: RUF001
    }
)
_ENGLISH = frozenset(_STOP_WORDS["english"].split())
_LANGUAGES_OF = {
    word: tuple(name for name, words in _STOP_WORDS.items() if word in words.split())
    for words in _STOP_WORDS.values()
    for word in words.split()
}


def is_english(text: str, declared: str) -> bool:
    """Whether to take `text` for English.

    A declared language decides. Without one, a text is foreign if most of its letters are neither Latin nor Greek, or if
    another language's stop words are a tenth of its words, at least five, and more than English ones.
    """
    if declared:
        return declared.lower().replace("_", "-").split("-")[0] in _ENGLISH_CODES
    sample = text[:_SAMPLE].lower()
    tokens = sample.split()
    if sum(map(_ENGLISH.__contains__, tokens)) > _PLAINLY_ENGLISH * len(tokens):
        return True  # nearly every English text ends here; in no other language are these words so frequent
    if not sample.isascii():
        letters = len(_LETTER.findall(sample))
        if 2 * len(_LATIN_OR_GREEK.findall(sample)) < letters:
            return False
    words = _WORD.findall(sample)
    counts = Counter(name for word in words for name in _LANGUAGES_OF.get(word, ()))
    english = counts.pop("english", 0)
    strongest = max(counts.values(), default=0)
    return strongest < max(5, _FOREIGN * len(words)) or strongest <= english
