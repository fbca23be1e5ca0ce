from pathlib import Path

import pytest

from configs.reasons import reason, with_file


def test_a_missing_file_is_told_without_numbers(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "absent").read_bytes()
    assert reason(caught.value) == "no such file or directory"
    assert with_file(caught.value) == f"{tmp_path / 'absent'}: no such file or directory"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("Couldn't read: \nPage header failed.\n"), "couldn't read:; Page header failed"),
        (EOFError("Compressed file ended"), "compressed file ended"),
        (ValueError("CRC check failed"), "CRC check failed"),
        (ValueError(""), "ValueError"),
        (FileNotFoundError("x.parquet: no such file"), "x.parquet: no such file"),
    ],
)
def test_a_reason_is_one_line(error: Exception, said: str) -> None:
    assert reason(error) == said


def test_other_errors_stand_as_they_are() -> None:
    assert with_file(ValueError("A\nB")) == "A\nB"
    assert with_file(FileNotFoundError("x: no such file")) == "x: no such file"
