"""Chat templates in the manners that models use, each with a feature of its own, and talks."""

from __future__ import annotations

from typing import Any

TEMPLATES: dict[str, str] = {
    "chatml": (
        "{% for message in messages %}"
        "{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "headers": (
        "{{- bos_token }}\n{%- for message in messages %}\n"
        "    {{- '<|head|>' ~ message.role ~ '<|/head|>\n\n' ~ message.content | trim }}\n"
        "    {{- eos_token }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
        "    {{- '<|head|>assistant<|/head|>\n\n' }}\n"
        "{%- endif %}\n"
    ),
    "turns": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
        "{%- set talk = messages[1:] %}{%- else %}{%- set talk = messages %}{%- endif %}"
        "{%- set ns = namespace(index=0, last='') %}{{- bos_token }}"
        "{%- for message in talk %}"
        "{%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}"
        "{{- raise_exception('roles must take turns') }}{%- endif %}"
        "{%- set ns.index = ns.index + 1 %}"
        "{%- if message.role == 'user' %}"
        "{%- if loop.last and system is defined %}"
        "{{ '[INST] ' + system + '\n\n' + message.content }}"
        "{%- else %}{{- '[INST] ' + message.content }}{%- endif %}{{- ' [/INST]' }}"
        "{%- else %}{{- ' ' + message.content + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "roles": (
        "{% for m in messages if m.role is not none %}{{ '<|' + m['role'] + '|>' }}\n"
        "{{ m['content'] | upper if m.role == 'system' else m['content'] }}{{ eos_token }}\n"
        "{% if loop.last and add_generation_prompt %}<|assistant|>{% endif %}\n{% endfor %}"
    ),
    "tools": (
        "{% macro block(kind, body) %}<{{ kind }}>{{ body }}</{{ kind }}>{% endmacro %}\n"
        "{% set ns = namespace(found=false, all=[]) %}\n"
        "{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.found %}"
        "{% set ns.found = true %}{% set ns.all = ns.all + [m.content] %}{% endif %}{% endfor %}\n"
        "{% for m in messages %}\n"
        "{% if m.role == 'system' %}{% continue %}{% endif %}\n"
        "{{ block(m.role, m.content if m.content is string else m.content | tojson) }}\n"
        "{% for call in m.tool_calls | default([]) %}"
        "{{ block('call', call | tojson(indent=2)) }}{% endfor %}\n"
        "{% endfor %}{{ ns.all | join(', ') }} {{ messages | map(attribute='role') | list }} "
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    ),
    "words": (
        "{% for m in messages %}{% set parts = m.content.split('</think>') %}"
        "{{ parts[-1].lstrip('\\n').replace('o', '0') | replace('a', 'aa') }}|{{ 'x' * 3 }}|"
        "{{ '%s-%02d' % (m.role, 7) }}|"
        "{{ '{}:{}'.format(m.role, loop.index0) }}|{{ m.content.startswith('A') }}|{{ m.nothing }}|"
        "{{ m.content | length }}|{{ m.items() | list | first | string }}|"
        "{{ 2 ** 10 }}|{{ 7 // 2 }}|"
        "{% set block %}<{{ m.role }}>{% endset %}{{ block | indent(2, true) }}|{{ none }}|"
        "{{ [1, 2.5, true, none, 'q', {'k': (1, 2)}] }}|{{ range(3) | list }}|{{ dict(a=1) }}|"
        "{% generation %}{{ m.role | title }}{% endgeneration %}"
        "{% if loop.index > 2 %}{% break %}{% endif %}\n{% endfor %}"
    ),
}

TALKS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "  Hello, how are you?\n"}],
    "three": [
        {"role": "system", "content": "Answer briefly, in French."},
        {"role": "user", "content": "A <b>word</b> | pipe & 'quote' \"double\" grüße 世界 😀"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nVoilà."},
        {"role": "user", "content": "And\nmore\n\tlines"},
    ],
    "tool": [
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "weather", "arguments": {"town": "Köln", "days": 2}}],
        },
        {"role": "tool", "content": "12 °C"},
    ],
    "calls": [
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "abc123456",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"town": "Köln"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "abc123456", "name": "weather", "content": "12 °C"},
        {"role": "assistant", "content": "Twelve."},
        {"role": "user", "content": "Thanks"},
    ],
}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says the weather | now",
            "parameters": {
                "type": "object",
                "properties": {"town": {"type": "string", "description": "a town"}},
                "required": ["town"],
            },
        },
    }
]
BOS, EOS = "<s>", "</s>"
