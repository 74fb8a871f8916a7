"""Numbers and marks that are known by name, as Python's own."""

import math

#: The base of the natural logarithm.
e = math.e
#: Infinity.
inf = math.inf
#: What is no number.
nan = math.nan
#: In an index: a new axis of size 1.
newaxis = None
#: Half a circle over its radius.
pi = math.pi
