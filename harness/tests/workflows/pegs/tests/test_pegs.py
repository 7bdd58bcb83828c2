"""pegs, by its interface. Not a test of faultline's: the suite of the example's author."""

import ctypes
import subprocess
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint32, c_void_p, string_at
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BYTES = 8192


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    subprocess.run(["make", "-s", "-C", str(ROOT), "libpegs.so"], check=True)
    pegs = ctypes.CDLL(str(ROOT / "libpegs.so"))
    for name, answer, arguments in (
        ("create", c_void_p, [c_char_p, c_size_t, c_uint32, c_size_t]),
        ("open", c_void_p, [c_char_p, c_size_t]),
        ("close", None, [c_void_p]),
        ("reserve", c_void_p, [c_void_p, c_size_t]),
        ("hang", None, [c_void_p, c_uint32, c_void_p, c_size_t]),
        ("clear", None, [c_void_p, c_uint32]),
        ("at", c_void_p, [c_void_p, c_uint32, POINTER(c_size_t)]),
    ):
        function = getattr(pegs, f"pegs_{name}")
        function.restype, function.argtypes = answer, arguments
    return pegs


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return bytes(tmp_path / "board")


@pytest.fixture
def board(library: ctypes.CDLL, path: bytes) -> Iterator[int]:
    made = library.pegs_create(path, BYTES, 8, 0)
    assert made
    yield made
    library.pegs_close(made)


def test_what_hangs_is_there_after_it_was_opened_again(library: ctypes.CDLL, board: int, path: bytes) -> None:
    memory = library.pegs_reserve(board, 100)
    ctypes.memmove(memory, b"hat", 3)
    library.pegs_hang(board, 3, memory, 100)
    again, size = library.pegs_open(path, 0), c_size_t()
    assert string_at(library.pegs_at(again, 3, byref(size)), 3) == b"hat"
    assert size.value == 128
    assert library.pegs_at(again, 2, None) is None
    library.pegs_close(again)


def test_a_cleared_peg_gives_its_memory_back(library: ctypes.CDLL, board: int) -> None:
    memory = library.pegs_reserve(board, BYTES - 128)
    library.pegs_hang(board, 0, memory, BYTES - 128)
    assert library.pegs_reserve(board, 1) is None
    library.pegs_clear(board, 0)
    assert library.pegs_reserve(board, BYTES - 128) == memory


def test_what_is_no_board_is_not_opened(library: ctypes.CDLL, path: bytes) -> None:
    Path(path.decode()).write_bytes(bytes(BYTES))
    assert library.pegs_open(path, 0) is None
