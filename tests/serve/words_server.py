"""A retrieval server that finds passages by their words. Run by tests that need one in a process of its own."""

from search_fakes import search_app

from serve.listen import listen

listen(search_app(), host="127.0.0.1", port=0, drain_s=2)
