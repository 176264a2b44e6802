import json
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.models.chat_template import TEMPLATE_DATE, ChatTemplate, ChatTemplateError

MESSAGES = [{"role": "user", "content": " hi\n"}, {"role": "assistant", "content": "yo"}]


def render(source: str, **names: str | None) -> str:
    return ChatTemplate(source, names).render(MESSAGES, add_generation_prompt=True)


FEATURES = [
    "{%- for m in messages %}\n  {% if true %}\n  [{{ m.content }}]\n  {% endif %}\n{% endfor -%}",
    "  {% for m in messages %}\n{{ m['role'] }}\n{% endfor %}\n\n",
    "{{ messages | tojson }}{{ {'b': '<é>', 'a': 1} | tojson(indent=2, sort_keys=true) }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}",
    "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents }}{{ unknown is defined }}",
    "{% macro f(x) %}<{{ x | trim | upper }}>{% endmacro %}{{ f(messages[0].content) }}",
    "{% for i in range(3) %}{{ i }}{{ '-' * 5 }}{% endfor %}{{ messages[::-1][0].content }}",
    "{{ messages[0].content.split('h')[-1].strip() }}{{ '%s' % messages[0].role }}",
    "{% if strftime_now is defined %}dated{% endif %}{{ dict(a=1)['a'] }}",
]


@pytest.mark.parametrize("source", FEATURES)
def test_renders_what_transformers_renders(source: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    expected, _ = utilities.render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert render(source, bos_token="<s>", eos_token=None) == expected[0]


def test_the_date_is_fixed_so_that_tokens_never_change_overnight() -> None:
    assert render("{{ strftime_now('%d %b %Y') }}") == TEMPLATE_DATE.strftime("%d %b %Y")
    assert datetime(2025, 1, 1) > TEMPLATE_DATE


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{% for m in messages %}", "no valid Jinja"),
        ("{{ raise_exception('only for Tuesdays') }}", "only for Tuesdays"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update(role='x') }}", "unsafe"),
        ("{% for i in range(100001) %}{% endfor %}", "more than 100000 numbers"),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "more than 100000 numbers",
        ),
        ("{{ 'x' * 10000000000 }}", "beyond bounds"),
        ("{{ 10000000000 * 'x' }}", "beyond bounds"),
        ("{{ 9 ** 999999999 }}", "beyond bounds"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "writes more than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[7].content.x }}", "fails"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% include 'file' %}", "fails"),
    ],
)
def test_a_bad_template_is_a_clear_error(source: str, named: str) -> None:
    with pytest.raises(ChatTemplateError, match=named):
        render(source)


def test_the_bounds_leave_room_for_long_messages() -> None:
    text = "x" * 100_000
    source = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    rendered = ChatTemplate(source, {}).render(
        [{"role": "user", "content": text}], add_generation_prompt=False
    )
    assert rendered == text * 2


def test_each_rendering_has_the_whole_budget() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}done", {})
    for _ in range(3):
        assert template.render(MESSAGES, add_generation_prompt=True) == "done"


@given(
    value=st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
@settings(max_examples=100, deadline=None)
def test_tojson_writes_json(value: object) -> None:
    template = ChatTemplate("{{ messages[0].content | tojson }}", {})
    message = {"role": "user", "content": value}
    rendered = template.render([message], add_generation_prompt=False)  # type: ignore[list-item]
    assert json.loads(rendered) == value
