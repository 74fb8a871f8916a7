"""A small language model of random weights behind a server, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from arenite.generate.template import ChatTemplate
from arenite.serve import Engine
from arenite.serve.served_model import ServedText
from tests.generate.gguf_models import TINY, write_model
from tests.serve.running import TEMPLATE, Address, serving


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedText]:
    path = tmp_path_factory.mktemp("served") / "tiny.gguf"
    write_model(path, replace(TINY["llama-q8_0"], context=512))
    with Engine(path, slots=4, context=384, queue=4) as engine:
        template = ChatTemplate(TEMPLATE, str(path))
        engine.tokenizer = replace(engine.tokenizer, chat_template=template)
        yield ServedText("tiny", engine, max_body=2**20)


@pytest.fixture(scope="session")
def server(talker: ServedText) -> Iterator[Address]:
    with serving(talker) as address:
        yield address
