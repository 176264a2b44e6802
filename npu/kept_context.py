"""One context for all graphs: loaded if it was compiled before and can be loaded, else compiled.

    kept, whole, of these very graphs and tables? ── no ─▶ compile ─▶ keep, where loading can work
              │ yes
    can this device load such a context at all? ── no ─▶ forget it, compile, and don't ask again
              │ yes (seen once, in a child)
           load it

On a phone none of the loading has been seen yet. What is known: onnxruntime-qnn's own tests leave
out weight sharing on Android (its pull request 191), and the x86 emulator crashes on loading
(pull request 822), so there nothing is kept.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from npu.context_cache import ContextCache, digest
from npu.context_reload import Reload, load_models, try_in_child
from npu.errors import EngineError
from npu.htp import is_emulator
from npu.sessions import HtpSessions
from npu.shared_context import SharedContext, build_shared_context, context_name, describe_context

_log = logging.getLogger(__name__)

_RELOAD = "reload.json"
_NEEDS_COMPILING = "compiled for the first time"


def open_shared_context(
    models: Mapping[str, bytes],
    table_hashes: Callable[[], Mapping[str, str]],
    write_tables: Callable[[Path], None],
    sessions: HtpSessions,
) -> SharedContext:
    """The sessions of `models` in one context, which says whether it was loaded and why not.

    Args:
        models: ONNX models by name, in an order that stays.
        table_hashes: the SHA-256 of each file that they refer to, by its name; only called where
            a context can be kept, since it reads every weight.
        write_tables: writes those files into a folder; called only to compile.
        sessions: what compiles and loads.

    Raises EngineError if it can't be compiled.
    """
    cache = sessions.cache
    if cache is None:
        return _compile(models, write_tables, sessions, "no folder to keep it in")
    if is_emulator():
        why = "the x86 emulator can't load a context that several graphs share"
        return _compile(models, write_tables, sessions, why)
    refused = _refusal(cache)
    if refused is not None:
        return _compile(models, write_tables, sessions, refused)
    parts = {name: digest(model) for name, model in models.items()}
    key = cache.key({**parts, **table_hashes()})
    found = _load(cache, key, models, sessions)
    if isinstance(found, SharedContext):
        return found
    return _compile(models, write_tables, sessions, found, (cache, key))


def _load(
    cache: ContextCache, key: str, models: Mapping[str, bytes], sessions: HtpSessions
) -> SharedContext | str:
    """The context from the cache, or why not."""
    files = cache.load(key)
    if files is None:
        return _NEEDS_COMPILING
    started = time.perf_counter()
    paths = {name: files[context_name(name)] for name in models}
    reload_key = _reload_key(cache)
    if cache.load(reload_key) is None:
        reload = try_in_child(paths.values(), sessions.compiled_for)
        if not reload.again:
            _note(cache, reload)
        if not reload.works:
            if not reload.again:
                cache.remove(key)
            return _sentence(reload.why)
    try:
        opened = load_models(paths, sessions)
    except EngineError as error:
        cache.remove(key)
        return f"the one that was kept can't be loaded: {error}"
    context = describe_context(opened, list(files.values()))
    return replace(
        context, seconds=time.perf_counter() - started, cached=True, why="compiled before"
    )


def _compile(
    models: Mapping[str, bytes],
    write_tables: Callable[[Path], None],
    sessions: HtpSessions,
    why: str,
    keep: tuple[ContextCache, str] | None = None,
) -> SharedContext:
    with tempfile.TemporaryDirectory(prefix="lorad-context-") as name:
        folder = Path(name)
        write_tables(folder)
        context = build_shared_context(models, folder, sessions)
        if keep is not None and _refusal(keep[0]) is None:
            cache, key = keep
            found = [folder / context_name(name) for name in models] + [*folder.glob("*.bin")]
            files: dict[str, bytes | Path] = {path.name: path for path in found}
            try:
                cache.store(key, files)
            except OSError as error:
                _log.warning("a compiled context can't be kept: %s", error)
                why = f"{why}, and it can't be kept: {error}"
    return replace(context, why=why)


def _reload_key(cache: ContextCache) -> str:
    return cache.key({_RELOAD: ""})


def _refusal(cache: ContextCache) -> str | None:
    """Why this device can't load shared contexts, if that was seen before."""
    noted = cache.load(_reload_key(cache))
    if noted is None:
        return None
    reload = Reload(**json.loads(noted[_RELOAD].read_bytes()))
    return None if reload.works else _sentence(reload.why)


def _note(cache: ContextCache, reload: Reload) -> None:
    content = json.dumps({"works": reload.works, "why": reload.why}).encode()
    try:
        cache.store(_reload_key(cache), {_RELOAD: content})
    except OSError as error:
        _log.warning("what a test of loading said can't be kept: %s", error)


def _sentence(why: str) -> str:
    return f"in a test, loading a context that several graphs share failed: {why}"
