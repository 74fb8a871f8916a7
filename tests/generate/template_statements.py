"""Templates with a statement or a rule of Jinja's each, for talks of `templates.TALKS`."""

from __future__ import annotations

STATEMENTS: dict[str, str] = {
    "scopes of loops": (
        "{% set x = 1 %}{% for m in messages %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"
    ),
    "scopes of if": "{% if true %}{% set x = 1 %}{% endif %}{{ x }}{{ y is defined }}",
    "scopes of with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "scopes of blocks": (
        "{% set a = 1 %}{% set b %}{% set a = 2 %}{{ a }}{% endset %}{{ a }}{{ b }}"
    ),
    "a macro's names": (
        "{% set a = 1 %}{% macro f(b, c=a, d='x' ~ b) %}{{ a }}{{ b }}{{ c }}{{ d }}{{ e }}"
        "{% set a = 5 %}{% endmacro %}{% set a = 2 %}{{ f(3) }}{{ f(3, d=7) }}{{ f() }}{{ a }}"
    ),
    "names set after a macro": (
        "{% macro f() %}[{{ late }}]{% endmacro %}{% set late = 1 %}{{ f() }}"
    ),
    "a macro that calls itself": (
        "{% macro show(v) %}{% if v is mapping %}{% for k, w in v | dictsort %}{{ k }}={{ "
        "show(w) }};"
        "{% endfor %}{% elif v is sequence and v is not string %}({% for w in v %}{{ show(w) }}"
        "{% endfor %}){% else %}{{ v }}{% endif %}{% endmacro %}{{ show(messages) }}"
    ),
    "arguments of all kinds": (
        "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
        "{{ f(1) }}{{ f(1, 2, 3, 4) }}{{ f(b=1, a=2, c=3) }}{{ f(*[1, 2, 3], **{'z': 9}) }}"
    ),
    "too many arguments": "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "an unknown argument": "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "a call block": (
        "{% macro f(x) %}<{{ caller(x, 'y') }}>{% endmacro %}"
        "{% call(a, b) f('q') %}{{ a }}-{{ b }}-{{ messages | length }}{% endcall %}"
    ),
    "no caller": "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "loop's attributes": (
        "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
        "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}"
        "{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{{ loop.previtem.role if not "
        "loop.first }}"
        "{{ loop.nextitem.role if not loop.last }}{{ loop.previtem is defined }}\n{% endfor %}"
    ),
    "a filtered loop": (
        "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}"
        "{{ loop.last }}{{ m.role }}{% else %}none{% endfor %}"
        "{% for m in messages if m.role == 'nobody' %}x{% else %}none{% endfor %}"
    ),
    "a recursive loop": (
        "{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth }}:"
        "{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %},{% endfor %}"
    ),
    "loops left": (
        "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}"
        "{% endif %}{% with %}{{ i }}{% endwith %}{% else %}never{% endfor %}"
    ),
    "loops in loops": (
        "{% for m in messages %}{% for n in messages %}{% if loop.index > 1 %}{% break %}{% "
        "endif %}"
        "{{ loop.index }}{{ n.role[0] }}{% endfor %}{{ loop.index }}{% endfor %}"
    ),
    "unpacking": (
        "{% for k, (a, b) in [(1, (2, 3)), ('x', 'yz')] %}{{ k }}{{ a }}{{ b }}{% endfor %}"
    ),
    "unpacking too few": "{% set a, b = [1] %}",
    "several names at once": "{% set a, b = 'xy' %}{{ b }}{{ a }}",
    "a namespace": (
        "{% set ns = namespace({'a': 1}, b=2) %}{% for m in messages %}{% set ns.b = ns.b + ns.a %}"
        "{% endfor %}{{ ns.b }}{{ ns['a'] }}{{ ns.c is defined }}"
    ),
    "no namespace": "{% set x = 1 %}{% set x.y = 2 %}",
    "filters of blocks": (
        "{% filter upper | replace('A', 'b') %}aA{{ messages[0].role }}{% endfilter %}"
        "{% set x | trim | length %}  ab  {% endset %}{{ x }}"
    ),
    "blocks": "{% set a = 1 %}{% block b %}{{ a }}x{% endblock %}",
    "conditions": (
        "{{ 1 if messages else 2 }}{{ 'x' if false }}{{ (none or 'a') and ([] or 'b') }}"
        "{{ not [] }}{{ 1 < 2 <= 2 != 3 }}{{ 1 in [1.0] }}{{ 'a' not in 'abc' }}{{ none is none }}"
    ),
    "undefined": (
        "{{ nothing }}{{ nothing | default('d') }}{{ nothing is defined }}{{ nothing == nix }}"
        "{{ nothing | length }}{{ nothing | list }}{{ nothing | upper }}{{ nothing ~ 'x' }}"
        "{% for x in nothing %}x{% endfor %}{{ messages[99] is defined }}{{ messages[0].nix }}"
        "{{ messages[0].get('nix') }}{{ 'x' in nothing }}{{ messages[0].content.nix is defined }}"
    ),
    "an attribute of nothing": "{{ nothing.x }}",
    "nothing called": "{{ nothing() }}",
    "nothing added": "{{ nothing + 'x' }}",
    "nothing compared": "{{ nothing < 1 }}",
    "text and number": "{{ 'a' + 1 }}",
    "none and text": "{{ none + 'a' }}",
    "none gone through": "{% for x in none %}{% endfor %}",
    "numbers": (
        "{{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 1e3 }} {{ 1.0 }} "
        "{{ 10 ** 20 }} {{ true + 1 }} {{ +3 }} {{ 0x1f }} {{ 1_000 }} {{ 2.5 | round }} "
        "{{ 2.567 | round(2, 'floor') }} {{ 42 | round }} {{ '42.7' | int }} {{ 'x' | int(-1) }} "
        "{{ '1f' | int(0, 16) }} {{ '1.5' | float }} {{ [] | int(3) }} {{ -1.5 | abs }} "
        "{{ [1, 2, 3] | sum }} {{ 5 is odd }} {{ 6 is divisibleby 3 }} {{ '12' | int + 1 }}"
    ),
    "a division by nothing": "{{ 1 / 0 }}",
    "tests": (
        "{% for v in [1, 1.5, true, none, 'a', [1], (1,), {'a': 1}, nothing, range(2)] %}"
        "{{ v is integer }}{{ v is float }}{{ v is boolean }}{{ v is number }}{{ v is string }}"
        "{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}{{ v is none }}{{ v is true }}"
        "{{ v is callable }}{{ v is sameas none }}{{ v is defined }}\n{% endfor %}"
        "{{ 'upper' is filter }}{{ 'nix' is filter }}{{ 'odd' is test }}"
    ),
    "dicts": (
        "{% set d = {'b': 1, 'a': 2, 3: none} %}{{ d }}{{ d.b }}{{ d['a'] }}{{ d[3] }}{{ "
        "d.items() | list }}"
        "{{ d.keys() | list }}{{ d.values() | list }}{{ 'a' in d }}{{ d | length }}{{ d | list }}"
        "{{ d.get('x', 7) }}{{ {'B': 1, 'a': 2} | dictsort }}{{ {'x': 2, 'y': 1} | "
        "dictsort(by='value') }}"
        "{% for k in d %}{{ k }}{% endfor %}{{ dict(d.items(), z=1) | length }}{{ d | items | "
        "list }}"
        "{{ {'items': 1}['items'] }}{{ {'items': 1}.items() | list }}"
    ),
    "lists": (
        "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | "
        "sort(case_sensitive=true) }}"
        "{{ [1, 'a', 1.0, true, none] | unique | list }}{{ [[2], [1, 5]] | sort }}{{ [1, 2] < "
        "[1, 3] }}"
        "{{ messages | map(attribute='role') | unique | join(',') }}{{ [1, 2, 3][-2:] }}{{ (1, "
        "2) + (3,) }}"
        "{{ [1, 2] * 2 }}{{ [1, 2, 3] | batch(2) | list }}{{ [[1, 2], [3]] | sum(start=[]) }}"
        "{{ messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }}"
        "{{ messages | rejectattr('tool_calls', 'defined') | list | length }}"
        "{{ messages | groupby('role') | map('first') | list }}{{ [1, 2].index(2) }}{{ [1, "
        "1].count(1) }}"
        "{{ messages | sort(attribute='role,content') | map(attribute='role') | list }}"
        "{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}"
        "{{ messages | map(attribute='nix', default='-') | list }}{{ [3, 4] | first }}{{ [] | "
        "last }}"
    ),
    "streams": (
        "{% set s = [1, 2] | map('string') %}{{ s | join }}{{ s | join }}{{ [1] | reverse | list }}"
        "{{ messages | map('first') | list | length }}{{ (messages | select)[0] is defined }}"
    ),
    "cycler and joiner": (
        "{% set c = cycler('a', 'b') %}{% set j = joiner('|') %}{% for i in range(3) %}"
        "{{ j() }}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}{{ c.current }}"
    ),
    "white space": (
        "  {% if true %}\n  a\n  {% endif %}\n\n{%- if true -%}\n  b \n{%- endif +%}\n {{- ' c ' "
        "-}} \n"
        "{# note #}\n{% raw %}{{ x }}{% endraw %}\n"
    ),
    "texts": (
        "{{ 'a\\tb\\u00e9\\x41' }}{{ \"it's\" }}{{ ['it\\'s', 'a\"b\\n'] }}{{ 'ab'[5] is defined "
        "}}{{ 'ab'[-1] }}"
        "{{ 'x'.join(['a', 'b']) }}{{ 'aXbX'.replace('X', '--', 1) }}{{ 'a b' | title }}{{ 'ﬁ ß' "
        "| upper }}"
        "{{ 'é' | tojson(ensure_ascii=true) }}{{ [1.0, none, true, {'a': []}] | tojson(indent=1) "
        "}}{{ 'a' 'b' }}"
    ),
    "a list of texts joined with a number": "{{ ','.join([1]) }}",
    "a method that is not there": "{{ 'x'.nix() }}",
    "a generation": "{% generation %}{{ messages[0].role }}{% endgeneration %}",
}
