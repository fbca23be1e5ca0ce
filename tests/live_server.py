"""An application on a real socket, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from serve.listen import GuardedProtocol


@asynccontextmanager
async def listening(app: FastAPI, port: int = 0) -> AsyncIterator[str]:
    """A real server in this event loop, on a free port unless one is named; gives its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", ws="none", http=GuardedProtocol))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), "the server did not start"
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await running
