"""llama.cpp's own tokenizer, through the C functions the xllamacpp wheel exports."""

import ctypes
import importlib.util
from pathlib import Path

import pytest

VERSION = "2026.10.11549"


class _ModelParameters(ctypes.Structure):
    """llama_model_params of the pinned version; another one has another layout."""

    _fields_ = [
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    ]


class LlamaCppTokenizer:
    """The vocabulary of a GGUF file; skips the test if the pinned wheel isn't installed."""

    def __init__(self, path: Path) -> None:
        found = importlib.util.find_spec("xllamacpp")
        if found is None or found.origin is None:
            pytest.skip(f"xllamacpp=={VERSION} is not installed: no llama.cpp to compare with")
        library = ctypes.CDLL(str(Path(found.origin).parent / "xllamacpp.abi3.so"))
        library.llama_model_default_params.restype = _ModelParameters
        library.llama_model_load_from_file.restype = ctypes.c_void_p
        library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _ModelParameters]
        library.llama_model_get_vocab.restype = ctypes.c_void_p
        library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        library.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        library.llama_tokenize.restype = ctypes.c_int32
        library.llama_tokenize.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int32,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.c_int32,
            ctypes.c_bool,
            ctypes.c_bool,
        ]
        parameters = library.llama_model_default_params()
        parameters.vocab_only = True
        parameters.n_gpu_layers = 0
        self._library = library
        self._model = library.llama_model_load_from_file(str(path).encode(), parameters)
        assert self._model, f"llama.cpp can't load {path}"
        self._vocabulary = library.llama_model_get_vocab(self._model)
        self.size: int = library.llama_vocab_n_tokens(self._vocabulary)

    def encode(self, text: str, *, control_tokens: bool) -> list[int]:
        """Ids of `text`; `control_tokens` says whether their text means them."""
        data = text.encode("utf-8")
        room = len(data) + 8
        ids = (ctypes.c_int32 * room)()
        count = self._library.llama_tokenize(
            self._vocabulary, data, len(data), ids, room, False, control_tokens
        )
        assert count >= 0
        return list(ids[:count])
