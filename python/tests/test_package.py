"""The package as a whole."""

from conftest import run_python


def test_import_is_light(python_env):
    """Neither torch nor the native library comes with `import starlane`: a tool may ask for the version in no time."""
    said = run_python("import starlane, sys; print(starlane.__version__, 'torch' in sys.modules, 'ctypes' in sys.modules)",
                      python_env)
    assert said == "0.1.0 False False\n"


def test_site_is_there(site, work):
    (work / "x").write_bytes(b"1")
    assert (site.mount / "volumes/work" / work.name / "x").read_bytes() == b"1"
