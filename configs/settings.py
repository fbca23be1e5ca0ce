"""Every setting of the product, typed, in one place.

A field is documented where it is declared; `medverify config show` prints each value in force and where it came from, and
`configs/load.py` says how files, environment and flags are merged.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

STARTER = "starter"  # the index of the corpus that comes with the package


class Section(BaseModel):
    """Base of all settings: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Limits(Section):
    """What one episode may cost. Every limit that is hit gives the judgment a named stop reason."""

    max_turns: Annotated[int, Field(ge=1, description="Generations of the policy; a forced verdict is not one.")] = 8
    max_searches: Annotated[int, Field(ge=0, description="Searches per episode; 0 switches the tool off.")] = 4
    max_new_tokens: Annotated[int, Field(ge=1, description="Tokens written by the policy per episode.")] = 2048
    deadline_s: Annotated[float, Field(gt=0, description="Wall-clock seconds per episode.")] = 600.0
    turn_timeout_s: Annotated[float, Field(gt=0, description="Wall-clock seconds per generation of the policy.")] = (
        300.0
    )
    search_timeout_s: Annotated[float, Field(gt=0, description="Wall-clock seconds per search.")] = 20.0


class Guided(Section):
    """Bounds of the guided mode, for judges that were never trained to write the tags."""

    think_tokens: Annotated[int, Field(ge=1, description="Tokens of thinking per turn.")] = 128
    query_tokens: Annotated[int, Field(ge=1, description="Tokens of a search query.")] = 24
    claim_lead: Annotated[
        str, Field(description="How the first thought begins: an untrained judge needs a sentence to finish.")
    ] = "The reasoning claims that"
    query_lead: Annotated[
        str, Field(description="How a query begins in the judge's eyes; not part of what is searched for.")
    ] = "medical facts about"
    review_lead: Annotated[str, Field(description="How a thought after a search begins.")] = "The passages say that"
    min_searches: Annotated[int, Field(ge=0, description="Searches made before the judge may choose to answer.")] = 1
    max_searches: Annotated[int, Field(ge=0, description="Searches after which the judge must answer.")] = 2


class Sampling(Section):
    """How the policy's tokens are drawn. Greedy by default."""

    temperature: Annotated[float, Field(ge=0, le=5, description="0 is greedy.")] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1, description="Nucleus mass that is sampled from.")] = 1.0
    seed: Annotated[int, Field(ge=0, description="Same seed, same judge_id, same batch: same judgment.")] = 0


class TransformersEngine(Section):
    """The embedded engine: torch and transformers in this process."""

    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Field(description="auto: bfloat16 where the hardware multiplies it natively, else float32."),
    ] = "auto"
    device: Annotated[str, Field(description="auto, cpu, cuda or cuda:N.")] = "auto"
    max_sequences: Annotated[int, Field(ge=1, description="Episodes that share one batch.")] = 16
    max_context: Annotated[int, Field(ge=256, description="Tokens per episode, prompt and evidence included.")] = 4096
    step_tokens: Annotated[int, Field(ge=16, description="New tokens processed per forward pass, all episodes.")] = 1024


class OpenAIEngine(Section):
    """An OpenAI-compatible completions server that takes and gives token ids (vLLM, SGLang)."""

    base_url: Annotated[str, Field(description="Up to and including /v1.")] = "http://127.0.0.1:8000/v1"
    model: Annotated[str, Field(description="Name the server knows the model by; empty: ask the server.")] = ""
    api_key_env: Annotated[str, Field(description="Environment variable that holds the key; empty: none.")] = ""
    timeout_s: Annotated[float, Field(gt=0, description="Seconds for one request.")] = 120.0
    max_retries: Annotated[int, Field(ge=0, description="Tries after the first on connection loss, 429 and 5xx.")] = 4
    max_sequences: Annotated[int, Field(ge=1, description="Episodes in flight at the server.")] = 64
    max_context: Annotated[int, Field(ge=256, description="Tokens per episode that the server accepts.")] = 8192


class VLLMEngine(Section):
    """vLLM in this process: continuous batching on one or more GPUs."""

    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Field(
            description="auto: the precision that the model's config names, float16 or bfloat16 where that is float32; "
            "float32 on a CPU that does not multiply those itself."
        ),
    ] = "auto"
    max_sequences: Annotated[int, Field(ge=1, description="Episodes open at once, hence computed together.")] = 64
    max_context: Annotated[int, Field(ge=256, description="Tokens per episode, prompt and evidence included.")] = 8192
    tensor_parallel_size: Annotated[int, Field(ge=1, description="GPUs that share the model's weights.")] = 1
    gpu_memory_utilization: Annotated[
        float, Field(gt=0, le=1, description="Part of a GPU's memory that weights and cache may take.")
    ] = 0.9
    cache_gib: Annotated[
        float | None,
        Field(gt=0, description="GiB of keys and values on each device; null: what gpu_memory_utilization leaves."),
    ] = None
    enforce_eager: Annotated[bool, Field(description="Compile nothing: starts sooner, writes slower.")] = False


class JudgeSettings(Section):
    """Which model judges, and how."""

    model: Annotated[str, Field(description="Name in configs/models.yaml, name@commit, or a folder.")] = (
        "smollm2-135m-instruct"
    )
    engine: Annotated[Literal["transformers", "vllm", "openai"], Field(description="What runs the model.")] = (
        "transformers"
    )
    adapter: Annotated[
        str,
        Field(
            description="Folder of a LoRA adapter; engine openai: the name that the server knows it by. Empty: none."
        ),
    ] = ""
    mode: Annotated[
        Literal["auto", "free", "guided"],
        Field(description="free: the model writes its own tags; guided: we do; auto: as the catalogue says."),
    ] = "auto"
    prompt: Annotated[str, Field(description="Prompt file: a shipped name, or a path.")] = "auto"
    top_k: Annotated[int, Field(ge=1, le=50, description="Passages per search.")] = 3
    information_tokens: Annotated[
        int, Field(ge=32, description="Tokens of evidence per search; whole passages are dropped from the bottom.")
    ] = 768
    calibration: Annotated[
        Path | None,
        Field(
            description="File of `medverify calibrate` for this judge: fills `p_calibrated`. judge_id stays the same."
        ),
    ] = None
    force_verdict: Annotated[
        bool, Field(description="Read p(1) after a forced <answer> when the policy gives no readable verdict.")
    ] = True
    limits: Limits = Limits()
    guided: Guided = Guided()
    sampling: Sampling = Sampling()
    transformers: TransformersEngine = TransformersEngine()
    vllm: VLLMEngine = VLLMEngine()
    openai: OpenAIEngine = OpenAIEngine()

    def without_search(self) -> "JudgeSettings":
        """Guided judges never begin a search; free ones that ask for one are made to answer, if `force_verdict` is on."""
        return self.model_copy(
            update={
                "limits": self.limits.model_copy(update={"max_searches": 0}),
                "guided": self.guided.model_copy(update={"min_searches": 0, "max_searches": 0}),
            }
        )

    @property
    def max_sequences(self) -> int:
        """Episodes that the engine takes at once."""
        return int(getattr(self, self.engine).max_sequences)  # each engine has a section of its name


Profile = Literal["dense", "bm25", "hybrid", "rerank"]
EXACT = "exact"  # vectors as they were computed; else the name of a compressed copy


class RetrievalSettings(Section):
    """Where the judge looks things up."""

    index: Annotated[str, Field(description="`starter`, the folder of an index, or http://… of a server.")] = STARTER
    encoder: Annotated[str, Field(description="Encoder that builds and searches the index.")] = "minilm-l6"
    recipe: Annotated[
        Literal["auto", "minilm-l6", "medcpt"],
        Field(description="How the encoder is used; auto: as the catalogue says. Needed for a folder."),
    ] = "auto"
    profile: Annotated[
        Profile,
        Field(
            description="dense: nearest vectors; bm25: shared words; hybrid: both; rerank: dense, read by a cross-encoder."
        ),
    ] = "dense"
    vectors: Annotated[
        str,
        Field(
            pattern=r"^(exact|sq8|(pq|ivf)[1-9]\d*)$",
            description="exact, or a copy that `medverify index compress` made: sq8, pqM or ivfL. Not used by bm25.",
        ),
    ] = EXACT
    cross_encoder: Annotated[str, Field(description="Cross-encoder of the profile rerank: a name, or a folder.")] = (
        "medcpt-cross-encoder"
    )
    device: Annotated[str, Field(description="auto, cpu, cuda or cuda:N; for the encoders.")] = "auto"
    search_backend: Annotated[
        Literal["auto", "faiss", "torch"], Field(description="What compares exact vectors; auto: torch if installed.")
    ] = "auto"
    search_device: Annotated[
        str,
        Field(
            description="cpu, cuda (a part of the exact vectors on every GPU) or cuda:N; auto: as `device`, whose auto is "
            "every GPU, or the CPU where there is none."
        ),
    ] = "auto"
    verify: Annotated[
        bool, Field(description="Check every byte of an index when it is opened, also where that takes minutes.")
    ] = False
    batch_size: Annotated[int, Field(ge=1, description="Passages encoded together when an index is built.")] = 32
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Field(
            description="Of encoding passages; auto: bfloat16 where the hardware multiplies it natively, else float32."
        ),
    ] = "auto"

    @property
    def vectors_device(self) -> str:
        """Where exact vectors are searched: auto, cpu, cuda or cuda:N."""
        return self.device if self.search_device == "auto" else self.search_device


class CacheSettings(Section):
    """Judgments that are given again instead of being made again. Kept with the critique, which may quote the case."""

    max_rows: Annotated[int, Field(ge=0, description="Judgments kept; 0: no cache.")] = 200_000
    max_bytes: Annotated[int, Field(ge=1, description="Their size together.")] = 2_000_000_000
    max_age_days: Annotated[float, Field(ge=0, description="Days after which one is forgotten; 0: never.")] = 30.0


class AuditSettings(Section):
    """The log of what was judged, for whom, on which evidence."""

    enabled: Annotated[bool, Field(description="Keep a log; without it /judgments is empty.")] = True
    texts: Annotated[
        bool, Field(description="Keep questions, traces, critiques and queries too, instead of their hashes alone.")
    ] = False
    retention_days: Annotated[float, Field(ge=0, description="Days after which files are deleted; 0: never.")] = 90.0
    max_file_bytes: Annotated[int, Field(ge=1024, description="Size after which a new file is begun.")] = 64_000_000
    max_file_hours: Annotated[float, Field(gt=0, description="Age after which a new file is begun.")] = 24.0
    when_unwritable: Annotated[
        Literal["tolerate", "refuse"],
        Field(description="tolerate: give judgments that cannot be written down, and count them; refuse: answer 503."),
    ] = "tolerate"


class JobSettings(Section):
    """Long batches that are judged beside the requests of those who wait."""

    in_flight: Annotated[
        int,
        Field(ge=1, description="Cases of all jobs that are judged at once; the rest of the engine is for requests."),
    ] = 8
    max_cases: Annotated[int, Field(ge=1, description="Cases in one job.")] = 100_000
    max_bytes: Annotated[int, Field(ge=1024, description="Size of one upload of JSON lines.")] = 200_000_000
    max_jobs: Annotated[int, Field(ge=1, description="Jobs kept, finished ones included; beyond it 503.")] = 1000
    max_kept_bytes: Annotated[int, Field(ge=1, description="Their size together; beyond it no new one.")] = (
        20_000_000_000
    )
    retention_days: Annotated[
        float,
        Field(ge=0, description="Days after its end when a job is deleted, with its cases and results; 0: never."),
    ] = 7.0


class ServeSettings(Section):
    """The HTTP service."""

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    max_queue: Annotated[int, Field(ge=1, description="Cases admitted and unfinished; beyond it 503.")] = 512
    max_batch: Annotated[int, Field(ge=1, description="Cases in one request.")] = 256
    max_body_bytes: Annotated[int, Field(ge=1024, description="Size of one request body.")] = 8_000_000
    body_s: Annotated[float, Field(gt=0, description="Seconds in which a body has to arrive; then 408.")] = 60.0
    retry_after_s: Annotated[
        int, Field(ge=1, description="Retry-After of a 503 while no case has been judged; then it follows the pace.")
    ] = 5
    max_retry_after_s: Annotated[int, Field(ge=1, description="Seconds that a Retry-After never exceeds.")] = 60
    drain_s: Annotated[int, Field(ge=0, description="Seconds that requests under way have left after SIGTERM.")] = 120
    log: Annotated[
        Literal["text", "json"], Field(description="Lines of the log: for people, or a JSON object each for programs.")
    ] = "text"
    access_log: Annotated[bool, Field(description="A line for every request: its route, status, time and id.")] = True
    keys: Annotated[
        Literal["auto", "required", "off"],
        Field(description="auto: needed once one was made, and wherever others than this machine can connect."),
    ] = "auto"
    cache: CacheSettings = CacheSettings()
    audit: AuditSettings = AuditSettings()
    jobs: JobSettings = JobSettings()


class RetrieveSettings(Section):
    """The HTTP service of an index."""

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8081
    max_waiting: Annotated[int, Field(ge=1, description="Searches in the queue; beyond it 503.")] = 1024
    max_batch: Annotated[int, Field(ge=1, description="Queries encoded and searched together.")] = 256
    cached_hits: Annotated[int, Field(ge=0, description="Passages kept in remembered answers; 0: no cache.")] = 50_000
    max_queries: Annotated[int, Field(ge=1, description="Queries in one request.")] = 1024
    max_topk: Annotated[int, Field(ge=1, description="Passages per query.")] = 100
    max_passages: Annotated[int, Field(ge=1, description="Passages in one answer: its queries times topk.")] = 10_240
    max_body_bytes: Annotated[int, Field(ge=1024, description="Size of one request body.")] = 8_000_000
    body_s: Annotated[float, Field(gt=0, description="Seconds in which a body has to arrive; then 408.")] = 60.0
    deadline_s: Annotated[
        float, Field(gt=0, description="Seconds after which a search is given up with 503; callers may ask for less.")
    ] = 25.0
    allow_partial: Annotated[
        bool,
        Field(
            description="Answer without rows that cannot be searched, marked `partial`, also where nobody asks for it."
        ),
    ] = False
    drain_s: Annotated[int, Field(ge=0, description="Seconds that requests under way have left after SIGTERM.")] = 30


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # ~somebody
        raise ValueError(str(error)) from error


Place = Annotated[Path, AfterValidator(_expanded)]


class PathSettings(Section):
    """Where files are kept."""

    # Defaults are paths already; read as JSON, strictly, they would have to be text.
    cache: Annotated[Place, Field(description="Converted models and the starter index.", validate_default=False)] = (
        Path("~/.cache/medverify")
    )
    state: Annotated[
        Place,
        Field(
            description="What a service must not forget: keys, judgments, jobs, the audit log.", validate_default=False
        ),
    ] = Path("~/.local/state/medverify")

    @model_validator(mode="after")
    def _expand(self) -> "PathSettings":
        for name in ("cache", "state"):
            object.__setattr__(self, name, _expanded(getattr(self, name)))
        return self


class Settings(Section):
    """All settings of the product."""

    judge: JudgeSettings = JudgeSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    serve: ServeSettings = ServeSettings()
    retrieve: RetrieveSettings = RetrieveSettings()
    paths: PathSettings = PathSettings()

    @property
    def index_folder(self) -> Path:
        """Where the index lies that the judge searches."""
        if self.retrieval.index == STARTER:
            return self.paths.cache / "indexes" / STARTER
        return Path(self.retrieval.index).expanduser()
