"""BLAKE2b, as CPython has it itself: importing `hashlib` brings in OpenSSL, which would take each
start some 3 ms and 3 MiB."""

try:
    from _blake2 import blake2b as blake2b
except ImportError:  # another Python
    from hashlib import blake2b as blake2b

#: Bytes of a digest.
NBYTES = 32


def digest_of(data: bytes | bytearray | memoryview) -> bytes:
    """The digest of some bytes."""
    return blake2b(data, digest_size=NBYTES).digest()
