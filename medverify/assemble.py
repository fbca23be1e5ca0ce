"""Putting a judge together from settings: the one place where names become models, indexes and engines."""

import os
from collections.abc import Callable
from pathlib import Path

from configs.catalogue import EncoderEntry, JudgeEntry
from configs.resolve import ResolvedModel, resolve
from configs.settings import JudgeSettings, RetrievalSettings, Settings
from retrieval.build import build_index
from retrieval.encoder import TransformerEncoder
from retrieval.encoder_spec import PRESETS
from retrieval.local import LocalRetriever
from retrieval.manifest import MANIFEST_FILE, Manifest
from retrieval.passage import BuildError
from retrieval.serial import SerialRetriever
from retrieval.sources import starter
from verifier.engines.base import Engine
from verifier.judge import Judge, Mode
from verifier.prompt import load_prompt

Report = Callable[[str], None]

STARTER = "starter"


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
    """
    judge = settings.judge
    report(f"finding the judge {judge.model}")
    model = resolve(judge.model, settings.paths.cache, tokenizer_only=judge.engine == "openai", on_progress=report)
    prompt = load_prompt(_prompt_name(judge, model))
    local = load_retriever(settings, report)
    retriever = SerialRetriever(local) if reproducible else local
    report(f"loading {model.name}")
    return Judge(load_engine(judge, model), retriever, prompt, _mode(judge, model), judge)


def load_engine(settings: JudgeSettings, model: ResolvedModel) -> Engine:
    """The engine that the settings name, with the model in it."""
    if settings.engine == "openai":
        from verifier.engines.openai import OpenAIEngine

        key = os.environ.get(settings.openai.api_key_env, "") if settings.openai.api_key_env else ""
        return OpenAIEngine(model.path, model.digest, settings.openai, key)
    from verifier.engines.transformers import TransformersEngine

    return TransformersEngine(model.path, model.digest, settings.transformers)


def load_retriever(settings: Settings, report: Report = lambda _: None) -> LocalRetriever:
    """Open the index that the settings name; the starter index is built when it is first needed."""
    folder = index_folder(settings)
    if settings.retrieval.index == STARTER and not (folder / MANIFEST_FILE).exists():
        build_starter(settings, report)
    report(f"opening the index {folder.name}")
    return LocalRetriever.open(folder, encoder_of_index(settings, folder, report))


def index_folder(settings: Settings) -> Path:
    """Where the index of these settings lies."""
    if settings.retrieval.index == STARTER:
        return settings.paths.cache / "indexes" / STARTER
    return Path(settings.retrieval.index).expanduser()


def build_starter(settings: Settings, report: Report) -> None:
    """Build the index of the starter corpus in the cache."""
    report("building the starter index, once")
    try:
        build_index(starter(), load_encoder(settings, settings.retrieval.encoder, report), index_folder(settings))
    except BuildError:
        if not (index_folder(settings) / MANIFEST_FILE).exists():
            raise  # else another process was faster: its index is as good


def encoder_of_index(settings: Settings, folder: Path, report: Report) -> TransformerEncoder:
    """The encoder that an index was built with."""
    return load_encoder(settings, Manifest.load(folder).encoder.name, report)


def load_encoder(settings: Settings, name: str, report: Report) -> TransformerEncoder:
    """An encoder by catalogue name, or a folder with the recipe of the default encoder."""
    report(f"finding the encoder {name}")
    model = resolve(name, settings.paths.cache, on_progress=report)
    recipe = model.entry.recipe if isinstance(model.entry, EncoderEntry) else RetrievalSettings().encoder
    query = model.paths.get("query") or model.path
    device, batch_size = settings.retrieval.device, settings.retrieval.batch_size
    return TransformerEncoder(PRESETS[recipe], query, model.paths.get("article"), device, batch_size)


def _mode(settings: JudgeSettings, model: ResolvedModel) -> Mode:
    if settings.mode != "auto":
        return settings.mode
    return model.entry.mode if isinstance(model.entry, JudgeEntry) else "free"


def _prompt_name(settings: JudgeSettings, model: ResolvedModel) -> str:
    if settings.prompt != "auto":
        return settings.prompt
    return "guided" if _mode(settings, model) == "guided" else "judge"
