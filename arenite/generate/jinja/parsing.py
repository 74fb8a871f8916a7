"""A template's source as a tree: Jinja's own parser, with the tags that chat templates have."""

from __future__ import annotations

from jinja2 import Environment, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser


class _Generation(Extension):
    """The tag that marks a model's own words for training; its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def parse(source: str) -> nodes.Template:
    """The tree; nothing of it is run."""
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    return environment.parse(source)
