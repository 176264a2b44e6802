"""A run's kept rows of the layers below its adapter, if its spec wants any."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from trainer.environment import environment_record
from trainer.lora import LoraAdapter
from trainer.models.decoder import Decoder
from trainer.prefix_cache import PrefixCache
from trainer.prefix_files import prefix_name
from trainer.run_examples import RunExamples
from trainer.spec import RunSpec

_MIB = 1024 * 1024


def run_prefix(
    home: Path, spec: RunSpec, decoder: Decoder, adapter: LoraAdapter, examples: RunExamples
) -> PrefixCache | None:
    """What the layers below make of the run's examples; None if none is to be kept of them.

    It is decided by the spec alone, and so by a resumed run as by the one it goes on with. They are
    kept over the end of the run, for the next one.
    """
    layers = adapter.layers.start
    if not layers or not spec.prefix_cache_mb:
        return None
    report = decoder.engine.report()
    environment = {
        **environment_record(report, {}),
        "soc": report["soc"],
        "lorad": metadata.version("lorad"),
    }
    files = examples.keep_rows(
        home / "adapters" / str(spec.adapter_id) / "prefix",
        prefix_name(spec.base_hash, layers, environment),
        spec.prefix_cache_mb * _MIB,
    )
    return PrefixCache(decoder, layers, files)
