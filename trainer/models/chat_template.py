"""Chat templates: Jinja text out of a model file, rendered as `transformers` renders it.

A template is a program somebody else wrote, so it runs in Jinja's immutable sandbox with bounds on
what it may compute: it can neither reach Python's internals nor loop or grow without end. The
environment (block trimming, loop controls, `raise_exception`, `strftime_now`, `tojson` without HTML
escaping, `generation` blocks) is that of transformers' `render_jinja_template`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_DATE = datetime(2024, 7, 26)
"""What `strftime_now` tells a template: the date Llama's own templates fall back to.

Today's date, which transformers would give, would make the tokens of a run differ from night to
night, and a resumed run could not repeat the one it resumes.
"""

_LARGEST_RANGE = 100_000
_LARGEST_PRODUCT = 1_000_000
_ROOM_BESIDE_MESSAGES = 1_000_000


class ChatTemplateError(ValueError):
    """The model's chat template can't be compiled or rendered; says what it did."""


class ChatTemplate:
    """A compiled chat template.

    `special_tokens` are the names it may use (`bos_token`, ...); those that are null stay
    undefined, as in transformers. Raises ChatTemplateError if the text is no valid template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str | None]) -> None:
        """Compile `source`."""
        self._special_tokens = {k: v for k, v in special_tokens.items() if v is not None}
        self._environment = _Environment()
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ChatTemplateError(f"the chat template is no valid Jinja: {error}") from error

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The conversation as one text, control tokens written out.

        Raises ChatTemplateError if the template refuses the messages, touches what the sandbox
        forbids or exceeds its bounds.
        """
        limit = _ROOM_BESIDE_MESSAGES + 16 * sum(
            len(text) for message in messages for text in message.values()
        )
        self._environment.range_left = _LARGEST_RANGE
        parts: list[str] = []
        length = 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
            ):
                parts.append(part)
                length += len(part)
                if length > limit:
                    raise ChatTemplateError(
                        f"the chat template writes more than {limit} characters; it is broken"
                    )
        except ChatTemplateError:
            raise
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"the chat template fails: {error.message}") from error
        except Exception as error:
            # A template may raise anything Python's own methods raise, e.g. ZeroDivisionError.
            raise ChatTemplateError(
                f"the chat template fails: {type(error).__name__}: {error}"
            ) from error
        return "".join(parts)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with one budget of range items for a whole rendering and bounded products."""

    intercepted_binops = frozenset({"*", "**"})
    range_left = _LARGEST_RANGE

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, jinja2.ext.loopcontrols],
        )
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = TEMPLATE_DATE.strftime
        self.globals["range"] = self._range

    def _range(self, *arguments: int) -> range:
        """Python's range, for at most _LARGEST_RANGE items a rendering, nested loops together."""
        items = range(*arguments)
        self.range_left -= len(items)
        if self.range_left < 0:
            raise ChatTemplateError(
                f"the chat template loops over more than {_LARGEST_RANGE} numbers; it is broken"
            )
        return items

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """`a * b` and `a ** b` while the result stays small: 'x' * 10**10 is 10 GB."""
        size = 0
        for value, times in ((left, right), (right, left)):
            if hasattr(value, "__len__") and isinstance(times, int):
                size = max(size, len(value) * times)
        if operator == "**" or size > _LARGEST_PRODUCT:
            raise ChatTemplateError(
                f"the chat template computes {operator!r} with a result beyond bounds; it is broken"
            )
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}`: transformers marks the assistant's text with it; it renders its body."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it as an instance attribute)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The block's body in place of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    """What templates call to refuse a conversation."""
    raise jinja2.TemplateError(message)
