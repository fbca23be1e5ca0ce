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
    """The key to show, if there is one; blanks around it, such as the end of a line, are none of it.

    Raises:
        ValueError: it is no key. The message does not repeat it.
    """
    key = (api_key or os.environ.get(API_KEY) or "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(f"the API key has characters that no key has; look at api_key, or at {API_KEY}")
    return key or None
