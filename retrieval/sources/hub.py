"""Rows of data sets as `datasets` reads them: of a repository on the hub at a commit, or of a folder that is a copy."""

from collections.abc import Iterator
from typing import Any

import httpx2

from retrieval.passage import SourceError


def streamed(
    place: str,
    *,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    data_files: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of a split as they are downloaded: nothing is stored but what the library keeps of the listing.

    Args:
        place: owner/name on the hub, or a folder.
        config: of the repository, where it has several.
        split: which part.
        revision: commit; None for a folder.
        data_files: which files of it are meant.

    Raises:
        SourceError: the library is missing, or it cannot read the set.
    """
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError as error:
        raise SourceError(f"{place}: datasets is missing; pip install 'medverify[corpora]'") from error
    try:
        for row in load_dataset(place, config, split=split, revision=revision, data_files=data_files, streaming=True):
            yield dict(row)
    # The library's, its HTTP client's and its reader's.
    except (DatasetsError, httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        where = f"{place} at {revision} cannot be read from the hub" if revision else f"{place} cannot be read"
        raise SourceError(f"{where} ({type(error).__name__}: {error})") from error
