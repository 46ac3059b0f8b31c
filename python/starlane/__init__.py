"""Starlane from Python.

`starlane.torch` loads and saves checkpoints at the speed of the storage, `starlane.client` talks to a running site without a
mount. Importing this package imports neither torch nor the native library.
"""

__version__ = "0.1.0"
