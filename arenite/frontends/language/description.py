"""Description: what a file says about the shape of a language model, whatever its format."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Limits of what is believed: above them a file is taken for damaged.
MAX_LAYERS = 2**9  # planning takes some 15 ms a layer; the deepest models have some 300
MAX_WIDTH = 2**20
MAX_EXPERTS = 2**12
#: Of lengths of contexts and vocabularies, and of numbers like the base of angles.
MAX_CONTEXT = 2**31
MAX_NUMBER = 1e12
#: What any number is above, and what one is above that angles or turns are divided by: so all that
#: is made of them is finite in 32 bits, and not zero.
LEAST_NUMBER = 1e-30
LEAST_FACTOR = 1e-6


class Rope(NamedTuple):
    """How positions turn queries and keys. `pairs`: elements (0, 1), (2, 3)... are turned
    together, and not element k with element k + half.

    `factor` is by how many times the context was stretched: "linear" divides all angles by it,
    "yarn" those of slow dimensions alone, and so does "llama3", with other borders.
    """

    size: int  # elements of a head that are turned, from the first on
    base: float
    pairs: bool
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def frequencies(self) -> NDArray[np.float64]:
        """Angle of a turn by one position, for each pair of elements."""
        steps = self.base ** (-2 * np.arange(self.size // 2) / self.size)
        if self.scaling == "linear":
            return steps / self.factor
        if self.scaling in ("yarn", "llama3"):
            stretched = self._stretched() if self.scaling == "yarn" else self._stretched_3(steps)
            return steps / self.factor * stretched + steps * (1 - stretched)
        return steps

    def magnitude(self) -> float:
        """What turned elements are multiplied by."""
        if self.scaling == "yarn" and self.factor > 1:
            return self.attention_factor * (1 + 0.1 * math.log(self.factor))
        return self.attention_factor

    def _stretched(self) -> NDArray[np.float64]:
        """For each pair 1 where its angles are divided by the factor, 0 where they stay: pairs that
        turn more than `beta_fast` times in the original context stay."""

        def pair_of(turns: float) -> float:
            full_turns = self.original_context / (turns * 2 * math.pi)
            return self.size * math.log(full_turns) / (2 * math.log(self.base))

        low = min(max(math.floor(pair_of(self.beta_fast)), 0), self.size)
        high = min(math.ceil(pair_of(self.beta_slow)), self.size - 1)
        ramp = (np.arange(self.size // 2) - low) / max(high - low, 0.001)
        return np.clip(ramp, 0, 1)

    def _stretched_3(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for Llama 3: by how often a pair turns in the original context, in between by
        how far it is from turning `beta_fast` times."""
        turns = self.original_context * steps / (2 * math.pi)
        kept = (turns - self.beta_slow) / (self.beta_fast - self.beta_slow)
        return 1 - np.clip(kept, 0, 1)


class Experts(NamedTuple):
    """Feed-forward networks of which each token uses a few. `normalised`: the weights of those
    used sum to one; `shared`: one more network is used by all tokens."""

    total: int
    used: int
    normalised: bool
    shared: bool
    scale: float = 1.0


class Description(NamedTuple):
    """Sizes in elements; `context` is the longest text the model was made for."""

    architecture: str
    name: str
    n_layers: int
    width: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    n_tokens: int
    context: int
    eps: float
    rope: Rope | None
    window: int | None = None  # how many tokens back attention sees
    whole_layers: frozenset[int] = frozenset()  # whose attention sees all, whatever the window
    experts: Experts | None = None
    pooling: str = "none"  # of an embedding model: "mean", "first", "last"
    is_causal: bool = True
    is_tied: bool | None = None  # logits by the table of tokens; None: where there is no other

    def window_of(self, layer: int) -> int | None:
        """How many tokens back the attention of a layer sees; None: all."""
        return None if layer in self.whole_layers else self.window
