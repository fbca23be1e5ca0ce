"""What a service says of the judge in it."""

from configs.catalogue import load_catalogue
from configs.settings import Settings
from medverify import __version__
from serve.schemas import Info
from verifier.judge import Judge


def info_of(judge: Judge, settings: Settings, coherence: Judge | None = None) -> Info:
    """The `/info` of a loaded judge, and of that of coherence beside it."""
    entry = load_catalogue().by_name.get(settings.judge.model.partition("@")[0])
    return Info(
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
        coherence_judge_id=coherence.judge_id if coherence else None,
    )
