"""Codecs: how bodies are compressed, encrypted, and kept elsewhere. Each codec is in a module of its own."""

from .encrypt import Encrypt
from .offload import Offload
from .protocol import Codec, Context
from .trace import Trace
from .zstd import Zstd

__all__ = ["Codec", "Context", "Encrypt", "Offload", "Trace", "Zstd"]
