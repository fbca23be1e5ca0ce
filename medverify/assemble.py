"""Putting a judge together from settings: the one place where names become models, indexes and engines."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from configs.adapter import read_adapter
from configs.catalogue import CrossEncoderEntry, EncoderEntry, JudgeEntry
from configs.resolve import ResolvedModel, resolve
from configs.settings import STARTER, JudgeSettings, Settings
from retrieval.build import build_index
from retrieval.encoder import Encoder, TransformerEncoder
from retrieval.encoder_spec import PRESETS
from retrieval.local import LocalRetriever
from retrieval.manifest import MANIFEST_FILE, Manifest
from retrieval.passage import BusyError, EncoderError, IndexCorruptError, IndexMismatchError, Retriever
from retrieval.remote import RemoteRetriever
from retrieval.rerank import TransformerCrossEncoder
from retrieval.serial import SerialRetriever
from retrieval.sources import starter
from verifier.calibration import Calibration
from verifier.engines.base import Engine, EngineError
from verifier.judge import Judge, Mode
from verifier.prompt import load_prompt

Report = Callable[[str], None]

_POLL_S = 0.5  # between two looks at an index that another process is building


def load_judge(settings: Settings, report: Report = lambda _: None, *, reproducible: bool = False) -> Judge:
    """Load everything that a judge needs. Blocking; takes seconds with a warm cache, about a minute without.

    Args:
        settings: what is in force.
        report: told in words what is being waited for.
        reproducible: give up throughput for the same numbers in every run, by searching one query at a time.

    Raises:
        ModelNotAvailableError, UnknownModelError: the model is not to be had here; the message names the command that mends it.
        RetrievalError: the index cannot be opened.
        EngineError, PromptError: the model or the prompt cannot be used.
        AdapterError: `judge.adapter` is not a LoRA adapter.
        CalibrationError: the calibration cannot be read, or is another judge's.
    """
    judge = settings.judge
    calibration = Calibration.load(judge.calibration.expanduser()) if judge.calibration else None
    model = _find_model(settings, "judge", report)
    prompt = load_prompt(_prompt_name(judge, model))
    local = load_retriever(settings, report)
    retriever = SerialRetriever(local) if reproducible else local
    report(f"loading {model.name}")
    return Judge(load_engine(judge, model), retriever, prompt, _mode(judge, model), judge, calibration=calibration)


def load_generator(settings: Settings, report: Report = lambda _: None) -> tuple[Engine, str]:
    """The engine that `judge` names, without a judge around it, and the name of the model in it.

    Raises:
        ModelNotAvailableError, UnknownModelError: the model is not to be had here; the message names the command that mends it.
        EngineError, AdapterError: it, or the adapter to it, cannot be used.
    """
    model = _find_model(settings, "generator", report)
    report(f"loading {model.name}")
    return load_engine(settings.judge, model), model.name


def load_engine(settings: JudgeSettings, model: ResolvedModel) -> Engine:
    """The engine that the settings name, with the model in it."""
    if settings.engine == "openai":
        from verifier.engines.openai import OpenAIEngine, served_model

        key = os.environ.get(settings.openai.api_key_env, "") if settings.openai.api_key_env else ""
        named = settings.openai
        if not named.model:  # the judge's id needs to know which it is
            named = named.model_copy(update={"model": served_model(named, key)})
        return OpenAIEngine(model.path, model.digest, named, key, settings.adapter)
    adapter = read_adapter(Path(settings.adapter).expanduser()) if settings.adapter else None
    if settings.engine == "vllm":
        from verifier.engines.vllm import VLLMEngine

        return VLLMEngine(model.path, model.digest, settings.vllm, adapter)
    from verifier.engines.transformers import TransformersEngine

    return TransformersEngine(model.path, model.digest, settings.transformers, adapter)


def load_retriever(settings: Settings, report: Report = lambda _: None) -> Retriever:
    """What the settings name: an index in this process, or a server elsewhere."""
    place = settings.retrieval.index
    if place.startswith(("http://", "https://")):
        report(f"asking {place} for its index")
        return RemoteRetriever.connect(place, timeout_s=settings.judge.limits.search_timeout_s)
    return load_local(settings, report)


def load_local(settings: Settings, report: Report = lambda _: None) -> LocalRetriever:
    """Open the index that the settings name, with the encoder that they name.

    The starter index is built when it is first needed, and again when it is damaged or when its corpus or the encoder is
    another than it was built from. Any other index that does not match is refused.
    """
    folder = settings.index_folder
    encoder = load_encoder(settings, settings.retrieval.encoder, report)
    if settings.retrieval.index == STARTER:
        ensure_starter(folder, encoder, report)
    report(f"opening the index {folder.name}")
    limits = settings.retrieve.model_dump(include={"max_waiting", "max_batch", "cached_hits"})
    how = settings.retrieval
    cross_encoder = load_cross_encoder(settings, report) if how.profile == "rerank" else None
    return LocalRetriever.open(
        folder,
        encoder,
        how.profile,
        cross_encoder,
        vectors=how.vectors,
        backend=how.search_backend,
        device=how.vectors_device,
        verify=how.verify,
        **limits,
    )


def ensure_starter(folder: Path, encoder: Encoder, report: Report) -> None:
    """See that the index of the starter corpus is there and whole; wait for another process that is building it."""
    while not _is_current(folder, encoder):
        try:
            report("building the starter index, once")
            build_index(starter(), encoder, folder, overwrite=True, fresh=True)
            return
        except BusyError:  # its index will be as good, and if it is killed, it is ours to build
            report("waiting for another process to build the starter index")
            time.sleep(_POLL_S)


def _is_current(folder: Path, encoder: Encoder) -> bool:
    if not (folder / MANIFEST_FILE).exists():
        return False
    try:
        manifest = Manifest.load(folder)
        manifest.check_encoder(encoder.spec)
        manifest.check_corpus(starter())
        manifest.check_files(folder)
    except (IndexMismatchError, IndexCorruptError):  # of another release, or damaged: it is ours to build again
        return False
    return True


def load_encoder(settings: Settings, name: str, report: Report) -> TransformerEncoder:
    """An encoder by catalogue name, `name@commit`, or folder (whose recipe `retrieval.recipe` names)."""
    report(f"finding the encoder {name}")
    model = resolve(name, settings.paths.cache, on_progress=report)
    recipe = settings.retrieval.recipe
    if recipe == "auto":
        if not isinstance(model.entry, EncoderEntry):
            raise EncoderError(f"{name} is not an encoder of the catalogue: name its recipe with retrieval.recipe")
        recipe = model.entry.recipe
    query = model.paths.get("query") or model.path
    how = settings.retrieval
    return TransformerEncoder(
        PRESETS[recipe], query, model.paths.get("article"), how.device, how.batch_size, precision=how.precision
    )


def load_cross_encoder(settings: Settings, report: Report) -> TransformerCrossEncoder:
    """The cross-encoder that the settings name: in the catalogue, `name@commit`, or a folder."""
    name = settings.retrieval.cross_encoder
    report(f"finding the cross-encoder {name}")
    model = resolve(name, settings.paths.cache, on_progress=report)
    if model.entry is not None and not isinstance(model.entry, CrossEncoderEntry):
        raise EncoderError(f"{name} is {model.entry.kind}, not a cross-encoder")
    return TransformerCrossEncoder(model.path, settings.retrieval.device, settings.retrieval.batch_size)


def _find_model(settings: Settings, role: str, report: Report) -> ResolvedModel:
    """The language model that `judge.model` names."""
    judge = settings.judge
    report(f"finding the {role} {judge.model}")
    model = resolve(judge.model, settings.paths.cache, tokenizer_only=judge.engine == "openai", on_progress=report)
    if isinstance(model.entry, EncoderEntry | CrossEncoderEntry):
        raise EngineError(f"{model.name} is an encoder, not a {role}")
    return model


def _mode(settings: JudgeSettings, model: ResolvedModel) -> Mode:
    if settings.mode != "auto":
        return settings.mode
    return model.entry.mode if isinstance(model.entry, JudgeEntry) else "free"


def _prompt_name(settings: JudgeSettings, model: ResolvedModel) -> str:
    if settings.prompt != "auto":
        return settings.prompt
    return "guided" if _mode(settings, model) == "guided" else "judge"
