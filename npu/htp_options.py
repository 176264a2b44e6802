"""Every option we may give to onnxruntime and its QNN provider, with the values it can have.

The QNN provider accepts misspelt names, nonsense values and contradictory SoCs in silence and does
something else, so none reaches it that isn't in these tables. That the names are spelt as the
libraries spell them is tested against the libraries themselves.

Sources: https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html and
https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.
"""

from __future__ import annotations

from collections.abc import Mapping

from npu.htp import SOCS

_SWITCH = frozenset({"0", "1"})
_PATH = None
"""Any text but the empty one."""

PERFORMANCE_MODES = frozenset(
    {
        "burst",
        "balanced",
        "default",
        "high_performance",
        "high_power_saver",
        "low_balanced",
        "low_power_saver",
        "power_saver",
        "sustained_high_performance",
    }
)

PROVIDER_OPTIONS: Mapping[str, frozenset[str] | None] = {
    "backend_path": _PATH,
    "enable_htp_fp16_precision": _SWITCH,
    "htp_arch": frozenset(str(soc.htp_arch) for soc in SOCS),
    "htp_performance_mode": PERFORMANCE_MODES,
    "soc_model": frozenset(str(soc.soc_model) for soc in SOCS),
}
"""Options of the QNN provider and what each can be."""

SESSION_OPTIONS: Mapping[str, frozenset[str] | None] = {
    "ep.context_embed_mode": _SWITCH,
    "ep.context_enable": _SWITCH,
    "ep.context_file_path": _PATH,
    "ep.share_ep_contexts": _SWITCH,
    "ep.stop_share_ep_contexts": _SWITCH,
    "session.disable_cpu_ep_fallback": _SWITCH,
    "session.intra_op.allow_spinning": _SWITCH,
}
"""Configuration entries of a session and what each can be."""


def check_provider_options(options: Mapping[str, str]) -> None:
    """Refuse QNN options that the provider would ignore or misread. Raises ValueError."""
    _check("QNN provider option", options, PROVIDER_OPTIONS)
    pair = options.get("soc_model"), options.get("htp_arch")
    if pair != (None, None) and pair not in {(str(s.soc_model), str(s.htp_arch)) for s in SOCS}:
        raise ValueError(
            f"expected a soc_model with its own htp_arch, found {pair[0]} with {pair[1]}: "
            "take both from npu.htp.SOCS"
        )


def check_session_options(entries: Mapping[str, str]) -> None:
    """Refuse session configuration entries that we don't use, or together. Raises ValueError."""
    _check("session option", entries, SESSION_OPTIONS)
    if entries.get("ep.share_ep_contexts") == "1" and entries.get("ep.context_embed_mode") == "1":
        raise ValueError(
            "expected ep.context_embed_mode 0 with ep.share_ep_contexts, found 1: "
            "a context that several models share is a file of its own"
        )
    if entries.get("ep.stop_share_ep_contexts") == "1" != entries.get("ep.share_ep_contexts"):
        raise ValueError(
            "expected ep.share_ep_contexts with ep.stop_share_ep_contexts, found it alone: "
            "the last of those that share is one of them"
        )


def _check(
    kind: str, options: Mapping[str, str], known: Mapping[str, frozenset[str] | None]
) -> None:
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"expected a {kind} of {', '.join(sorted(known))}, found {name!r}: "
                "add it to the table once its spelling is proven"
            )
        allowed = known[name]
        if allowed is None and not value:
            raise ValueError(f"{kind} {name}: expected a path, found an empty text: give one")
        if allowed is not None and value not in allowed:
            raise ValueError(
                f"{kind} {name}: expected one of {', '.join(sorted(allowed))}, found {value!r}: "
                "choose one of them"
            )
