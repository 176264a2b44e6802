"""llama.cpp itself, through the C functions that the xllamacpp wheel exports."""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np
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


class _ContextParameters(ctypes.Structure):
    """llama_context_params of the pinned version."""

    _fields_ = [
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("ctx_type", ctypes.c_int32),
        ("rope_scaling_type", ctypes.c_int32),
        ("pooling_type", ctypes.c_int32),
        ("attention_type", ctypes.c_int32),
        ("flash_attn_type", ctypes.c_int32),
        ("rope_freq_base", ctypes.c_float),
        ("rope_freq_scale", ctypes.c_float),
        ("yarn_ext_factor", ctypes.c_float),
        ("yarn_attn_factor", ctypes.c_float),
        ("yarn_beta_fast", ctypes.c_float),
        ("yarn_beta_slow", ctypes.c_float),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
        ("samplers", ctypes.c_void_p),
        ("n_samplers", ctypes.c_size_t),
        ("ctx_other", ctypes.c_void_p),
    ]


class _Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_WARNING = 3
_said: list[str] = []


@_LOG
def _log(level: int, text: bytes, _: object) -> None:
    if level >= _WARNING:
        _said.append(text.decode("utf-8", "replace").strip())


def _library() -> ctypes.CDLL:
    """The wheel's shared object; skips the test if the pinned one isn't installed."""
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
    return library


class LlamaCpp:
    """A GGUF model that computes in fp32, and the adapter that is added to it."""

    def __init__(self, path: Path) -> None:
        library = self._library = _library()
        pointer = ctypes.c_void_p
        library.llama_log_set.argtypes = [_LOG, pointer]
        library.llama_log_set(_log, None)
        library.llama_context_default_params.restype = _ContextParameters
        library.llama_init_from_model.restype = pointer
        library.llama_init_from_model.argtypes = [pointer, _ContextParameters]
        library.llama_adapter_lora_init.restype = pointer
        library.llama_adapter_lora_init.argtypes = [pointer, ctypes.c_char_p]
        library.llama_set_adapters_lora.argtypes = [
            pointer,
            ctypes.POINTER(pointer),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_float),
        ]
        library.llama_batch_init.restype = _Batch
        library.llama_batch_init.argtypes = [ctypes.c_int32] * 3
        library.llama_batch_free.argtypes = [_Batch]
        library.llama_decode.argtypes = [pointer, _Batch]
        library.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        library.llama_get_logits_ith.argtypes = [pointer, ctypes.c_int32]
        library.llama_get_memory.restype = pointer
        library.llama_get_memory.argtypes = [pointer]
        library.llama_memory_clear.argtypes = [pointer, ctypes.c_bool]
        library.llama_free.argtypes = [pointer]
        library.llama_model_free.argtypes = [pointer]
        parameters = library.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = library.llama_model_load_from_file(str(path).encode(), parameters)
        assert self._model, _said[-5:]
        context = library.llama_context_default_params()
        found = (context.n_ctx, context.n_batch, context.n_ubatch, context.type_k)
        assert found == (512, 2048, 512, 1), f"another layout than that of {VERSION}"
        assert context.yarn_ext_factor == -1
        context.n_threads = context.n_threads_batch = 1
        context.flash_attn_type = 0
        context.type_k = context.type_v = 0  # fp32
        self._context = library.llama_init_from_model(self._model, context)
        assert self._context, _said[-5:]
        vocabulary = library.llama_model_get_vocab(self._model)
        self._rows: int = library.llama_vocab_n_tokens(vocabulary)

    def close(self) -> None:
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)

    def add(self, path: Path) -> None:
        """Add this adapter and no other; an AssertionError has what llama.cpp says against it."""
        before = len(_said)
        adapter = self._library.llama_adapter_lora_init(self._model, str(path).encode())
        assert adapter, _said[before:]
        adapters, scales = (ctypes.c_void_p * 1)(adapter), (ctypes.c_float * 1)(1.0)
        assert self._library.llama_set_adapters_lora(self._context, adapters, 1, scales) == 0

    def logits(self, ids: list[int]) -> np.ndarray:
        """Of every position, fp32 [tokens, vocabulary]."""
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(self._context), True)
        batch = library.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
            batch.seq_id[place][0], batch.logits[place] = 0, 1
        assert library.llama_decode(self._context, batch) == 0, _said[-5:]
        rows = [library.llama_get_logits_ith(self._context, place) for place in range(len(ids))]
        found = np.stack([np.ctypeslib.as_array(row, (self._rows,)) for row in rows])
        library.llama_batch_free(batch)
        return found


class LlamaCppTokenizer:
    """The vocabulary of a GGUF file; skips the test if the pinned wheel isn't installed."""

    def __init__(self, path: Path) -> None:
        library = _library()
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
