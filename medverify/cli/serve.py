"""`medverify serve`: the HTTP service."""

from typing import Annotated

import typer

from configs.catalogue import load_catalogue
from medverify import __version__
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
    """Serve the judge over HTTP: verdicts, rewards in trainers' own protocols, searches; the API is described at /docs.

    The model is loaded once; requests in flight share its batches. SIGTERM finishes what is under way, then stops.
    """
    flags = [f"serve.{name}={value}" for name, value in (("host", host), ("port", port)) if value is not None]
    settings = settings_from(config, [*(overrides or []), *flags], model).settings
    with mended_by_user():
        from serve.app import create_app
        from serve.callers import OpenToAllError, check_start
        from serve.keys import KeysError
        from serve.listen import listen
        from serve.logs import log_config
        from serve.schemas import Info
        from serve.stores import Stores
        from verifier.coherence import coherence_judge

        stores = Stores.of(settings)
        try:
            check_start(settings.serve.host, settings.serve.keys, stores.keys)
        except (OpenToAllError, KeysError) as error:
            fail(str(error))
        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_judge

            judge = load_judge(settings, status.update)
        coherence = coherence_judge(judge)
        entry = load_catalogue().by_name.get(settings.judge.model.partition("@")[0])
        info = Info(
            judge_id=judge.judge_id,
            model=settings.judge.model,
            mode=judge.mode,
            engine=judge.engine.describe(),
            prompt=judge.prompt.name,
            prompt_digest=judge.prompt.digest,
            index_digest=judge.retriever.digest,
            version=__version__,
            # What was measured was the model without an adapter.
            quality=[row.model_dump() for row in entry.quality] if entry and not settings.judge.adapter else [],
            calibration=judge.calibration.describe() if judge.calibration else None,
            coherence_judge_id=coherence.judge_id,
        )
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
