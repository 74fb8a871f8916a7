"""Random templates of Jinja's expressions, typed so that most of them mean something."""

from __future__ import annotations

from random import Random

#: What makes a text, a number, a list and a condition; @ and a letter is a place for another.
FORMS: dict[str, list[str]] = {
    "t": [
        "@t + @t", "@t ~ @t ~ @n", "@t * @n", "@t[@n:@n]", "@t[@n::-1]", "@t[::2]", "@t[@n]",
        "@t|upper", "@t|lower", "@t|title", "@t|capitalize", "@t|trim", "@t|trim(@t)",
        "@t|replace(@t, @t)", "@t|replace(@t, @t, @n)", "@t|indent(@n)",
        "@t|indent(@t, true, true)",
        "@t|string", "@t|reverse", "@t|default(@t)", "@t|default(@t, true)", "@t.upper()",
        "@t.lower()", "@t.title()", "@t.capitalize()", "@t.swapcase()", "@t.casefold()",
        "@t.strip()", "@t.strip(@t)", "@t.lstrip(@t)", "@t.rstrip(@t)", "@t.lstrip()",
        "@t.rstrip()", "@t.replace(@t, @t)", "@t.replace(@t, @t, @n)", "@t.removeprefix(@t)",
        "@t.removesuffix(@t)", "@t.join(@l)", "@t.join(@t)", "@l|join(@t)", "@l|join",
        "@l|tojson", "@l|tojson(indent=2)", "@t|tojson(ensure_ascii=true)", "@l|string",
        "{@t: @t, 'k': @l}|tojson(separators=(@t, @t), sort_keys=true)", "{@t: @n, @n: @t}|string",
        "'%s|%5.2s|%-6s|%r' % (@t, @t, @t, @t)", "'%d %05d %x %%' % (@n, @n, 255)",
        "'%s' % @t", "'%(a)s%(b)6s' % {'a': @t, 'b': @n}", "@t|format(@t)",
        "'{}{{}}{:>5}{!r:*^9}{:.2}'.format(@t, @t, @t, @t)", "'{a}{b[0]}'.format(a=@t, b=@l)",
        "'{0:5}{1:+d}{0}'.format(@t, @n)", "@t.rjust(@n)", "@t.ljust(@n, '*')", "@t.zfill(@n)",
        "@t if @b else @t", "@l|first", "@l|last", "@l[@n]", "@l|min", "@l|max", "@t|first",
        "@t and @t", "@t or @t", "@l|sum(start=@t)", "@b|string", "not @b", "@n",
        "namespace(a=@t).a", "dict(a=@t)['a']", "[@t, @t][@n]", "(@t, @n, 1.5, none)|string",
    ],
    "n": [
        "@t|length", "@t.find(@t)", "@t.find(@t, @n)", "@t.rfind(@t, @n, @n)", "@t.rfind(@t)",
        "@t.count(@t)", "@t.count(@t, @n)", "@n + @n", "@n * @n", "@n - @n", "-@n", "@t|int",
        "@t|int(@n)", "@l|length", "@n|abs", "@l.count(@t)", "@t.index(@t)", "@n // 2", "@n % 3",
        "[@n, @n]|sum",
    ],
    "l": [
        "[@t, @t]", "[@t]", "[]", "@t.split(@t)", "@t.split(@t, @n)", "@t.rsplit(@t, @n)",
        "@t.split()", "@t.split(none, @n)", "@t.rsplit(none, @n)", "@t|list", "@l[@n:@n]",
        "@l[::-1]", "@l + @l", "@l * @n", "@l|sort", "@l|sort(reverse=true, case_sensitive=true)",
        "@l|unique|list", "@l|map('upper')|list", "@l|map('replace', @t, @t)|list",
        "@l|select('in', @l)|list", "@l|reject('equalto', @t)|list", "@l|reverse|list",
        "@t.partition(@t)|list", "@t.rpartition(@t)|list", "@t.splitlines()",
        "@t.splitlines(true)", "@l|map('length')|map('string')|list",
        "[{'a': @t}, {'a': @t}]|map(attribute='a')|list", "@l|batch(2, @t)|map('join')|list",
        "[{'a': @t, 'b': @t}, {'a': @t, 'b': @t}]|groupby('a')|map(attribute='grouper')|list",
        "{'x': @t, 'y': @t}.values()|list", "{'x': @t}.items()|first|list",
        "{@t: @n, @t: 3}|dictsort|map('first')|list", "@l|select|list",
    ],
    "b": [
        "@t in @t", "@t in @l", "@t == @t", "@t < @t", "@t >= @t", "@t.startswith(@t)",
        "@t.endswith(@t, @n)", "@t.startswith((@t, @t))", "@t is lower", "@n is odd",
        "@t.isalpha()",
        "@t.isspace()", "@t.isupper()", "@l == @l", "@l < @l", "@t not in @l",
        "@n is divisibleby(3)",
        "@t is string and @n is number", "@t is in @l",
    ],
}  # fmt: skip


def random_expression(random: Random, alphabet: str, names: list[str], depth: int = 3) -> str:
    """An expression that makes a text: its literals are of the alphabet, its variables texts."""

    def made(sort: str, depth: int) -> str:
        if sort == "n" and (depth <= 0 or random.random() < 0.7):
            return str(random.randint(-3, 6))
        if sort == "t" and (depth <= 0 or random.random() < 0.3):
            if random.random() < 0.5:
                return random.choice(names)
            return literal("".join(random.choices(alphabet, k=random.randint(0, 4))))
        if depth <= 0:
            return "['b', 'a']" if sort == "l" else "true"
        first, *others = random.choice(FORMS[sort]).split("@")
        return first + "".join(f"({made(part[0], depth - 1)}){part[1:]}" for part in others)

    return made("t", depth)


def literal(text: str) -> str:
    """A text as a template writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
