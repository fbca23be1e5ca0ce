"""An index over HTTP that an attack poisons: for a judge at a URL, whose service asks it as any other retrieval server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from configs.settings import RetrieveSettings
from eval.attack.poison import PoisonedRetriever
from serve.errors import install
from serve.listen import GuardedProtocol
from serve.routes import searches
from serve.searching import Searching, install_searching


@asynccontextmanager
async def poisoned_index(
    retriever: PoisonedRetriever, settings: RetrieveSettings, host: str, port: int
) -> AsyncIterator[str]:
    """Serve the index, in this event loop, as long as the context lasts; gives its address.

    Args:
        retriever: whose poison decides what is found.
        settings: limits of a request.
        host: address to listen on.
        port: to listen on; 0 picks a free one.

    Raises:
        OSError: nothing can listen there.
    """
    config = uvicorn.Config(
        _app(retriever, settings),
        host=host,
        port=port,
        log_level="error",
        access_log=False,
        ws="none",
        http=GuardedProtocol,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        if running.done():
            raise OSError(f"{host}:{port}: nothing can listen there; is the port taken?")
        await asyncio.sleep(0.01)
    taken, *_ = server.servers[0].sockets[0].getsockname()[1:]
    try:
        yield f"http://{host}:{taken}"
    finally:
        server.should_exit = True
        await running


class _Server(uvicorn.Server):
    """Leaves signals to the command that it is a part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        except SystemExit:  # uvicorn's way to say that the port is taken
            self.should_exit = True


def _app(retriever: PoisonedRetriever, settings: RetrieveSettings) -> FastAPI:
    app = FastAPI(openapi_url=None)
    install(app)
    install_searching(app)
    app.include_router(searches.router(Searching(retriever, settings)))

    @app.get("/info")
    async def info() -> dict[str, str]:
        """The index, as a judge needs to know it."""
        return {"digest": retriever.digest}

    return app
