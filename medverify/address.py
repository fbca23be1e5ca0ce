"""Where the service is and which key it takes: as an argument, or from the environment."""

import os

URL = "MEDVERIFY_URL"
API_KEY = "MEDVERIFY_API_KEY"


def url_of(url: str | None) -> str:
    """The service's address.

    Raises:
        ValueError: it is nowhere given.
    """
    found = url or os.environ.get(URL)
    if not found:
        raise ValueError(f"where is the service? Pass url=…, or set {URL}, such as {URL}=http://localhost:8080")
    return found


def key_of(api_key: str | None) -> str | None:
    """The key to show, if there is one."""
    return api_key or os.environ.get(API_KEY) or None
