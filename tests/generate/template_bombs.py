"""Templates that were made to run for ever or to fill the memory; each ends with one clear error.

Run as a program it renders them all, with a small budget and under limits of its own, and prints
what came of each as JSON.
"""

from __future__ import annotations

import json
import resource

from arenite.errors import AreniteError
from arenite.generate.jinja import meter
from arenite.generate.template import ChatTemplate

CPU_SECONDS = 100
MORE_NBYTES = 2**27  # than were there before

BOMBS = {
    "a long loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a filtered loop": (
        "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}"
    ),
    "a range too long": "{% for i in range(10 ** 9) %}{% endfor %}",
    "a long output": "{{ 'a' * 2000000 }}",
    "lengths of a long text": (
        "{% set a = 'a' * 3000000 %}{% for i in range(99999) %}{{ a | length }}{% endfor %}"
    ),
    "dicts with long keys": (
        "{% set a = {'a' * 1000000: 1} %}{% set b = {'a' * 1000000: 1} %}"
        "{% for i in range(99999) %}{{ a == b }}{% endfor %}"
    ),
    "a macro of many parameters": (
        "{% macro f(" + ",".join(f"a{i}" for i in range(9000)) + ") %}{% endmacro %}"
        "{% for i in range(99999) %}{{ f() }}{% endfor %}"
    ),
    "macros made of many parameters": (
        "{% for i in range(99999) %}{% macro f(" + ",".join(f"a{i}" for i in range(9000)) + ") %}"
        "{% endmacro %}{% endfor %}"
    ),
    "a condition of many branches": (
        "{% for i in range(99999) %}{% if 1 %}" + "{% elif 1 %}" * 3000 + "{% endif %}{% endfor %}"
    ),
    "macros with a long body": (
        "{% for i in range(99999) %}{% macro f() %}"
        + "{{ a }}" * 9000
        + "{% endmacro %}{% endfor %}"
    ),
    "a long text": "{{ 'a' * 10 ** 9 }}",
    "texts doubled": (
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + "
        "ns.s %}{% endfor %}{{ ns.s | length }}"
    ),
    "texts joined": (
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ "
        "ns.s %}{% endfor %}{{ ns.s | length }}"
    ),
    "blocks doubled": (
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}"
        "{{ ns.s }}{% endset %}{% endfor %}{{ ns.s | length }}"
    ),
    "lists doubled": (
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + "
        "ns.s %}{% endfor %}{{ ns.s | length }}"
    ),
    "lists in lists": (
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, "
        "ns.s] %}{% endfor %}{{ ns.s }}"
    ),
    "dicts in dicts": (
        "{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, "
        "'b': ns.s} %}{% endfor %}{{ ns.s | tojson }}"
    ),
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a loop that calls itself": (
        "{% for i in [[[1]]] recursive %}{{ loop([[1]]) }}{{ loop([[1]]) }}{% endfor %}"
    ),
    "a power": "{{ 10 ** (10 ** 8) }}",
    "squares": (
        "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n "
        "%}{% endfor %}{{ ns.n }}"
    ),
    "a wide field": "{{ '%999999999d' % 1 }}",
    "a wide field by a star": "{{ '%*d' % (999999999, 1) }}",
    "a wide field of format": "{{ '{:>999999999}'.format(1) }}",
    "a wide field in a field": "{{ '{:{}}'.format(1, 999999999) }}",
    "a wide line": "{{ 'a'.ljust(999999999) }}",
    "a centred line": "{{ 'a'.center(999999999) }}",
    "wide tabs": "{{ '\t'.expandtabs(999999999) }}",
    "zeros": "{{ '1'.zfill(999999999) }}",
    "replacing": "{{ ('a' * 4000000).replace('a', 'b' * 4000000) | length }}",
    "replacing by a filter": "{{ ('a' * 4000000) | replace('a', 'b' * 4000000) | length }}",
    "joining": "{{ ('b' * 4000000).join(['a'] * 4000000) | length }}",
    "joining by a filter": "{{ (['a'] * 4000000) | join('b' * 4000000) | length }}",
    "a wide indent of JSON": "{{ [[1]] | tojson(indent=999999999) }}",
    "comparisons": (
        "{% set a = 'a' * 4000000 %}{% set b = 'a' * 4000000 %}{% for i in range(100000) "
        "%}{% if a == b %}{% endif %}{% endfor %}"
    ),
    "slices": (
        "{% set a = 'a' * 4000000 %}{% for i in range(100000) %}{% set b = a[1:] %}{% endfor %}"
    ),
    "searches": (
        "{% set a = 'a' * 4000000 %}{% for i in range(100000) %}{{ 'b' is in a }}{% endfor %}"
    ),
    "many arguments": (
        "{% macro f() %}{{ varargs[0] }}{% endmacro %}{% set a = range(99999) | list %}"
        "{% for i in range(99999) %}{{ f(*a) }}{% endfor %}"
    ),
    "hashes of tuples in tuples": (
        "{% set ns = namespace(t=(1,)) %}{% macro f() %}{% set ns.t = varargs %}{% "
        "endmacro %}{% for i in range(60) %}{{ f(ns.t, ns.t) }}{% endfor %}{{ {ns.t: 1} }}"
    ),
    "looking up tuples in tuples": (
        "{% set ns = namespace(t=(1,)) %}{% macro f() %}{% set ns.t = varargs %}{% "
        "endmacro %}{% for i in range(60) %}{{ f(ns.t, ns.t) }}{% endfor %}{{ "
        "messages[0][ns.t] }}"
    ),
    "asking for tuples in tuples": (
        "{% set ns = namespace(t=(1,)) %}{% macro f() %}{% set ns.t = varargs %}{% "
        "endmacro %}{% for i in range(60) %}{{ f(ns.t, ns.t) }}{% endfor %}{{ "
        "messages[0].get(ns.t) }}"
    ),
    "a deep tuple": (
        "{% set ns = namespace(t=(1,)) %}{% for i in range(90000) %}{% set ns.t = "
        "(ns.t,) %}{% endfor %}{{ {ns.t: 1} }}"
    ),
    "a long list of one long text": (
        "{% set a = 'a' * 4000000 %}{% set b = range(99999) | map('default', a) | list %}"
        "{% set c = [none] * 99999 | map('default', a, true) | list %}{{ c }}"
    ),
    "much output": "{% set a = 'a' * 4000000 %}{% for i in range(100000) %}{{ a }}{% endfor %}",
    "classes of Python": "{{ ''.__class__.__mro__ }}",
    "globals of Python": "{{ raise_exception.__globals__['re'] }}",
    "a function printed": "{{ raise_exception }}",
    "a namespace printed": "{{ namespace(a=1) }}",
    "a date without end": "{{ strftime_now('%99999999d') }}",
    "no template": "{% for %}",
    "an unknown filter": "{{ 1 | nonsense }}",
    "another file": "{% include '/etc/passwd' %}",
    "parentheses": "{{ " + "(" * 20000 + ")" * 20000 + " }}",
    "a long template": "x" * 300000,
    "dicts made by a call": (
        "{% set ns = namespace(s={}, t={}) %}{% for i in range(60) %}{% set ns.s = "
        "dict(a=ns.s, b=ns.s) %}{% set ns.t = dict(a=ns.t, b=ns.t) %}{% endfor %}{{ ns.s "
        "== ns.t }}"
    ),
    "rfind": "{{ ('a'*2000000).rfind('ab'+'a'*1000000) }}",
    "rfind loop": (
        "{% set a = 'a'*2000000 %}{% set b='ab'+'a'*1000000 %}{% for i in range(1000) %}"
        "{{ a.rfind(b) }}{% endfor %}"
    ),
    "rsplit": "{{ ('a'*2000000).rsplit('ab'+'a'*1000000)|length }}",
    "rpartition": "{{ ('a'*2000000).rpartition('ab'+'a'*1000000)|length }}",
    "rindex": "{{ ('a'*2000000).rindex('ab'+'a'*1000000) }}",
    "find": (
        "{% set a='a'*29000 %}{% set b='a'*14000+'b' %}{% for i in range(99999) %}{{ "
        "a.find(b) }}{% endfor %}"
    ),
    "find mid": (
        "{% set a='a'*4000000 %}{% set b='a'*60+'b' %}{% for i in range(99999) %}{{ "
        "a.find(b) }}{% endfor %}"
    ),
    "find prefix": (
        "{% set a='a'*4000000 %}{% set b='a'*1000000+'b' %}{% for i in range(99999) %}{{ "
        "a.find(b) }}{% endfor %}"
    ),
    "in small": (
        "{% set a='a'*2400 %}{% set b='a'*1200+'b' %}{% for i in range(99999) %}{{ b in "
        "a }}{% endfor %}"
    ),
    "in tiny": (
        "{% set a='a'*255 %}{% set b='a'*63+'b' %}{% for i in range(99999) %}{{ b in a }}"
        "{{ b in a}}{{ b in a}}{% endfor %}"
    ),
    "strip set": (
        "{% set s = range(60000)|join %}{{ ('a'*4000000).strip('b'*4000000+'a')|length }}"
    ),
    "trim set": "{% for i in range(99999) %}{{ ('ab'*1000)|trim('xyab') }}{% endfor %}",
    "count": "{% set a='ab'*1000000 %}{% for i in range(99999) %}{{ a.count('b') }}{% endfor %}",
    "split": (
        "{% set a='ab'*1000000 %}{% for i in range(99999) %}{{ a.split('b')|length }}{% endfor %}"
    ),
    "split keep": (
        "{% set ns=namespace(l=[]) %}{% set a='ab'*100000 %}{% for i in range(99999) %}"
        "{% set ns.l = ns.l + a.split('b') %}{% endfor %}"
    ),
    "unique": (
        "{% set ns=namespace(l=[]) %}{% set p=2**61-1 %}{{ "
        "range(60000)|map('string')|map('int')|list|length }}{% set l = namespace(a=[0]) "
        "%}{% for i in range(60000) %}{% set l.a = l.a + [i*p] %}{% endfor %}{{ "
        "l.a|unique|list|length }}"
    ),
    "unique2": (
        "{% set p=2**61-1 %}{% macro g() %}{{ varargs|unique|list|length }}{% endmacro %}"
        "{% set x %}{% for i in range(50000) %}{{ i*p }} {% endfor %}{% endset %}{{ "
        "x.split()|map('int')|unique|list|length }}"
    ),
    "int hex": "{{ ('f'*4000000)|int(base=16) is divisibleby(7) }}",
    "int floordiv": "{{ ('f'*4000000)|int(base=16) // ('e'*2000000)|int(base=16) }}",
    "int dec": "{{ ('9'*4000000)|int }}",
    "pct width": "{{ '%(a)999999999d' % {'a':1} }}",
    "pct prec": "{{ '%(a).999999999f' % {'a':1} }}",
    "pct width s": "{{ '%(a)999999999s' % {'a':'x'} }}",
    "pct many": (
        "{% set f = '%999d'*60000 %}{% for i in range(99999) %}{{ (f % "
        "((1,)*60000))|length }}{% endfor %}"
    ),
    "pct prec many": (
        "{% set f = '%.999f'*6000 %}{% for i in range(99999) %}{{ (f % "
        "((1e300,)*6000))|length }}{% endfor %}"
    ),
    "pct s big": "{% set a='a'*4000000 %}{{ (('%s'*1000) % ((a,)*1000))|length }}",
    "pct filter": "{{ '%999999999d'|format(1) }}",
    "pct paren": "{{ ('%('*1000000) % {'a':1} }}",
    "pct star": "{{ '%*d' % (10**9, 1) }}",
    "tojson sep": "{{ ([1]*100000)|tojson(separators=('a'*4000000, 'b')) }}",
    "tojson indent": "{{ [[[1]]]|tojson(indent='a'*10000000) }}",
    "tojson many": (
        "{% set l = [1]*400000 %}{% for i in range(9999) %}{{ (l|tojson)|length }}{% endfor %}"
    ),
    "tojson esc": (
        "{% set l = '\\u0001'*4000000 %}{% for i in range(9999) %}{{ "
        "(l|tojson(ensure_ascii=true))|length }}{% endfor %}"
    ),
    "repr esc": (
        "{% set l = ['\\u0001'*4000000] %}{% for i in range(9999) %}{{ (l|string)|length "
        "}}{% endfor %}"
    ),
    "format": "{{ '{:>999999999}'.format(1) }}",
    "format prec": "{{ '{:.999999999f}'.format(1) }}",
    "format many": (
        "{% set f = '{0:>999}'*60000 %}{% for i in range(99999) %}{{ "
        "f.format('x')|length }}{% endfor %}"
    ),
    "format fields": "{% set f = '{'*2000000 %}{{ f.format('x')|length }}",
    "format fields2": "{% set f = '{a'*1000000 %}{{ f.format('x')|length }}",
    "format idx": "{{ ('{'~('9'*100000)~'}').format(1) }}",
    "format path": "{{ ('{0'~('.a'*1000000)~'}').format({'a':1}) }}",
    "format spec": "{{ ('{0:'~('9'*1000000)~'}').format(1) }}",
    "lower": (
        "{% set a='İ'*4000000 %}{% for i in range(9999) %}{{ a.lower()|length }}{% endfor %}"
    ),
    "title": (
        "{% set a='a-'*2000000 %}{% for i in range(9999) %}{{ (a|title)|length }}{% endfor %}"
    ),
    "upper": (
        "{% set a='ß'*4000000 %}{% for i in range(9999) %}{{ a.upper()|length }}{% endfor %}"
    ),
    "isalpha": "{% set a='ß'*4000000 %}{% for i in range(9999) %}{{ a.isalpha() }}{% endfor %}",
    "splitlines": (
        "{% set a='\n'*4000000 %}{% for i in range(9999) %}{{ a.splitlines()|length }}{% endfor %}"
    ),
    "words": (
        "{% set a='a '*2000000 %}{% for i in range(9999) %}{{ a.split()|length }}{% endfor %}"
    ),
    "indent": "{{ ('a\n'*2000000)|indent('x'*1000000)|length }}",
    "indent loop": (
        "{% set a='a\n'*100000 %}{% for i in range(9999) %}{{ (a|indent)|length }}{% endfor %}"
    ),
    "indent width": "{{ 'a\nb'|indent(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "join": "{{ (['a']*1000000)|join('b'*1000000)|length }}",
    "join self": "{{ ('b'*1000000).join('b'*1000000)|length }}",
    "replace": "{{ ('a'*1000000).replace('a','b'*1000000)|length }}",
    "replace empty": "{{ ('a'*1000000).replace('','b'*1000000)|length }}",
    "replace loop": (
        "{% set a='ab'*500000 %}{% for i in range(9999) %}{{ a.replace('a','c')|length }}"
        "{% endfor %}"
    ),
    "batch": "{{ [1]|batch(10**12, 1)|list }}",
    "batch many": (
        "{% set l=[1]*400000 %}{% for i in range(9999) %}{{ l|batch(1)|list|length }}{% endfor %}"
    ),
    "sort": (
        "{% set l=(range(99999)|list)*40 %}{% for i in range(9999) %}{{ (l|sort)|length "
        "}}{% endfor %}"
    ),
    "sort texts": (
        "{% set a='a'*1000000 %}{% set l=[a~1,a~2,a~3,a~0]*100 %}{% for i in range(9999) "
        "%}{{ (l|sort)|length }}{% endfor %}"
    ),
    "sort attr": "{% set l=[{'a':1}]*100000 %}{{ (l|sort(attribute='a,'*10000))|length }}",
    "max": (
        "{% set a='a'*1000000 %}{% set l=[a~1,a~2,a~3,a~0]*100 %}{% for i in range(9999) "
        "%}{{ (l|max)|length }}{% endfor %}"
    ),
    "groupby": (
        "{% set l=[{'a':1}]*400000 %}{% for i in range(9999) %}{{ "
        "(l|groupby('a'))|length }}{% endfor %}"
    ),
    "map attr": (
        "{% set l=[{'a':1}]*400000 %}{% for i in range(9999) %}{{ "
        "l|map(attribute='a.'*1000)|list|length }}{% endfor %}"
    ),
    "list eq": (
        "{% set a=[0]*1000000 %}{% set b=[0]*1000000 %}{% for i in range(9999) %}{{ a==b "
        "}}{% endfor %}"
    ),
    "list in": "{% set a=[0]*1000000 %}{% for i in range(9999) %}{{ 1 in a }}{% endfor %}",
    "shared eq": (
        "{% set ns=namespace(a=[1],b=[1]) %}{% for i in range(60) %}{% set "
        "ns.a=[ns.a,ns.a] %}{% set ns.b=[ns.b,ns.b] %}{% endfor %}{{ ns.a==ns.b }}"
    ),
    "shared lt": (
        "{% set ns=namespace(a=[1],b=[1]) %}{% for i in range(60) %}{% set "
        "ns.a=[ns.a,ns.a] %}{% set ns.b=[ns.b,ns.b] %}{% endfor %}{{ ns.a<ns.b }}"
    ),
    "shared json": (
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=[ns.a,ns.a] %}"
        "{% endfor %}{{ ns.a|tojson }}"
    ),
    "keep texts": (
        "{% set ns=namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + "
        "[('a'*1000)~i] %}{% endfor %}"
    ),
    "keep dicts": (
        "{% set ns=namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, "
        "{'a':i,'b':i}] %}{% endfor %}"
    ),
    "keep chars": (
        "{% set ns=namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + "
        "('ab'*100000)|list %}{% endfor %}"
    ),
    "keep macros": (
        "{% set ns=namespace(l=[]) %}{% for i in range(99999) %}{% macro f() %}{{ f }}{% "
        "endmacro %}{% set ns.l = [ns.l, f] %}{% endfor %}"
    ),
    "keep ns": (
        "{% set ns=namespace(l=0) %}{% for i in range(99999) %}{% set m = "
        "namespace(a=ns.l) %}{% set ns.l = m %}{% endfor %}"
    ),
    "keep cyclers": (
        "{% set ns=namespace(l=0) %}{% for i in range(99999) %}{% set ns.l = "
        "cycler(ns.l, 'a'*1000) %}{% endfor %}"
    ),
    "keep streams": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = "
        "ns.l|map('default') %}{% endfor %}{{ ns.l|list }}"
    ),
    "keep methods": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, "
        "'a'.upper] %}{% endfor %}"
    ),
    "keep ranges": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, "
        "range(i)] %}{% endfor %}"
    ),
    "keep ints": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, "
        "2**1000+i] %}{% endfor %}"
    ),
    "keep undefined": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, "
        "('a'*1000)[5000]] %}{% endfor %}"
    ),
    "ns cycle": (
        "{% set ns=namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns, "
        "ns.l] %}{% endfor %}{{ ns.l }}"
    ),
    "slices backwards": (
        "{% set a='a'*4000000 %}{% for i in range(99999) %}{{ a[::-1]|length }}{% endfor %}"
    ),
    "slice tuple": (
        "{% set a=(1,)*1000000 %}{% for i in range(99999) %}{{ a[1:]|length }}{% endfor %}"
    ),
    "pow": "{{ 10**(10**9) }}",
    "pow2": "{{ (2**1000)**1000 }}",
    "powf": "{{ 10.0**(10**9) }}",
    "mul": (
        "{% set ns=namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n*ns.n %}{% "
        "endfor %}{{ ns.n }}"
    ),
    "shift": "{{ 1 << 1000000000 }}",
    "hex literal": "{{ 0x" + "f" * 60000 + " }}",
    "round": "{{ 1.5|round(10**9) }}",
    "round neg": "{{ 1|round(-10**9) }}",
    "roundfloor": "{{ 1.5|round(2**60,'floor') }}",
    "float": "{{ ('1'*4000000)|float }}",
    "range": "{% for i in range(10**30) %}{% endfor %}",
    "range neg": "{% for i in range(0,-10**9,-1) %}{% endfor %}",
    "range0": "{% for i in range() %}{% endfor %}",
    "range float": "{% for i in range(1.5) %}{% endfor %}",
    "urlize": "{{ 'http://a '*1000000|urlize }}",
    "wordwrap": "{{ ('a'*1000000)|wordwrap(1) }}",
    "center": "{{ 'a'|center(10**9) }}",
    "xmlattr": "{{ {'a':1}|xmlattr }}",
    "pprint": "{{ [1]|pprint }}",
    "striptags": "{{ '<'*100000|striptags }}",
    "attr": "{{ ''|attr('__class__') }}",
    "slice f": "{{ [1]|slice(10**12)|list }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "kwargs": (
        "{% set ns=namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, "
        "**{('k'~i): i}) %}{% endfor %}"
    ),
    "varargs": "{% macro f() %}{{ f(*(varargs + (1,)*10000)) }}{% endmacro %}{{ f() }}",
    "loop rec": "{% for i in [[[1]]] recursive %}{{ loop([[1]]) }}{{ loop([[1]]) }}{% endfor %}",
    "caller": (
        "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}{% macro g() %}{% call "
        "f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}"
    ),
    "deep attr": "{{ a" + ".b" * 9000 + " }}",
    "deep add": "{{ " + "1+" * 9000 + "1 }}",
    "deep filter": "{{ 1" + "|int" * 9000 + " }}",
    "deep not": "{{" + " not" * 9000 + "  1 }}",
    "deep list": "{{ " + "[" * 20000 + "]" * 20000 + " }}",
    "ors": "{{" + " 1 or" * 9000 + " 1 }}",
    "deep data": (
        "{% set ns = namespace(t=[1]) %}{% for i in range(90000) %}{% set ns.t = [ns.t] "
        "%}{% endfor %}{{ ns.t }}"
    ),
    "deep data eq": (
        "{% set ns = namespace(t=[1],u=[1]) %}{% for i in range(90000) %}{% set ns.t = "
        "[ns.t] %}{% set ns.u = [ns.u] %}{% endfor %}{{ ns.t == ns.u }}"
    ),
    "deep data json": (
        "{% set ns = namespace(t={}) %}{% for i in range(90000) %}{% set ns.t = "
        "{'a':ns.t} %}{% endfor %}{{ ns.t|tojson }}"
    ),
    "lexer digits": "{{ " + "1" * 60000 + " }}",
    "lexer digits_": "{{ " + "1_" * 30000 + "x }}",
    "lexer dots": "{{ " + "1." * 20000 + " }}",
    "lexer str": "{{ '" + "\\" * 60000 + " }}",
    "lexer braces": "{" * 60000,
    "lexer tags": "{% " * 20000,
    "lexer minus": "{{-" * 20000,
    "lexer raw": "{% raw %}" * 7000,
    "lexer comment": "{#" * 30000,
    "lexer spaces": " " * 30000 + "{{" + " " * 30001,
    "lexer nl": "\n" * 30000 + "{% if 1" + "\n" * 30000,
    "lexer lstrip": (" " * 100 + "{% if 1 %}") * 500,
    "lexer es": "{{ " + "1e" * 30000 + "1 }}",
    "raise": "{{ raise_exception('a'*4000000) }}",
    "strftime padded": "{{ strftime_now('%-_99999999d') }}",
    "strftime": "{{ strftime_now('%Y'*1000000) }}",
    "undefined msg": "{{ {}['a'*4000000].x }}",
    "loop changed": (
        "{% set a=[0]*1000000 %}{% set b=[0]*1000000 %}{% for i in range(9999) %}{{ "
        "loop.changed(a if i%2 else b) }}{% endfor %}"
    ),
    "groupby key": (
        "{% set l=[{'a':[1]*1000000},{'a':[1]*1000000}] %}{% for i in range(9999) %}{{ "
        "(l|groupby('a'))|length }}{% endfor %}"
    ),
    "items": (
        "{% set d=dict((range(99999)|batch(2)|list)[:-1]) %}{% for i in range(9999) %}{{ "
        "d.items()|list|length }}{% endfor %}"
    ),
    "dictsort": (
        "{% set d=dict((range(99999)|batch(2)|list)[:-1]) %}{% for i in range(9999) %}{{ "
        "d|dictsort|length }}{% endfor %}"
    ),
}


def main() -> None:
    meter.BASE_STEPS, meter.BASE_NBYTES = 2**16, 2**23
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    ChatTemplate("{{ 1 }}", "model.gguf").render([])  # all is imported
    with open("/proc/self/statm") as file:
        nbytes = int(file.read().split()[0]) * resource.getpagesize() + MORE_NBYTES
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
    results = {}
    for name, source in BOMBS.items():
        try:
            ChatTemplate(source, "model.gguf").render([{"role": "user", "content": "x"}])
            results[name] = "rendered"
        except AreniteError as error:
            results[name] = str(error)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
