"""Closing: what holds memory of the system and gives it back when a `with` is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """`with` for whatever has a `close()`."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; closing twice is closing once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
