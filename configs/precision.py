"""What precision the hardware computes quickly."""


def native_bfloat16(device: str) -> bool:
    """Whether `device` ("cpu", "cuda", "cuda:1") multiplies bfloat16 itself. Imports torch.

    Emulated, bfloat16 is several times slower than float32.
    """
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
