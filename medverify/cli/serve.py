"""`medverify serve`: the HTTP service."""

from typing import Annotated

import typer

from medverify.cli.common import (
    ConfigOption,
    ModelOption,
    SetOption,
    err,
    fail,
    mended_by_user,
    quiet_libraries,
    settings_from,
    waiting,
)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Serve the judge over HTTP: verdicts, rewards in trainers' own protocols, searches; the API is described at /openapi.json.

    The model is loaded once; requests in flight share its batches. SIGTERM finishes what is under way, then stops.
    """
    flags = [f"serve.{name}={value}" for name, value in (("host", host), ("port", port)) if value is not None]
    settings = settings_from(config, [*(overrides or []), *flags], model).settings
    with mended_by_user():
        from medverify.about import info_of
        from serve.app import create_app
        from serve.callers import OpenToAllError, check_start
        from serve.keys import KeysError
        from serve.listen import listen
        from serve.logs import log_config
        from serve.stores import Stores
        from verifier.coherence import coherence_judge

        stores = Stores.of(settings)
        try:
            check_start(settings.serve.host, settings.serve.keys, stores.keys)
        except (OpenToAllError, KeysError) as error:
            fail(error)
        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_judge

            judge = load_judge(settings, status.update)
        coherence = coherence_judge(judge)
        info = info_of(judge, settings, coherence)
        err.print(
            f"judge {judge.judge_id[:12]} is loaded", highlight=False
        )  # uvicorn tells the address once it listens
        app = create_app(judge, settings.serve, info, stores, coherence=coherence, retrieve=settings.retrieve)
        listen(
            app,
            host=settings.serve.host,
            port=settings.serve.port,
            drain_s=settings.serve.drain_s,
            drain=app.state.judging,
            log_config=log_config(settings.serve.log),
            access_log=False,  # the application writes its own, with the ids of requests and without their addresses
        )
