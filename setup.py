"""Builds the native modules, where there is a compiler; pyproject.toml has everything else.

Without a compiler, without Cython or with KWIRE_PURE=1 kwire is installed without them, and does the same in Python.
KWIRE_SANITIZE=1 builds them with the sanitizers of addresses and undefined behavior, for tests/fuzz/fuzz_native.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from runpy import run_path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

#: Each includes the .pxi next to it, and the server's also some of kwire/.
SOURCES = {
    "kwire._native": "kwire/_native.pyx",
    "kwire.server.native._native": "server/native/_native.pyx",
}
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]


def extensions() -> list[Extension]:
    """The native modules, if they should be built."""
    if os.environ.get("KWIRE_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    checks = CHECKS if os.environ.get("KWIRE_SANITIZE") == "1" else []
    # `kwire --version` and the log's first line say so if a module was built from other sources than those that are there.
    built_from = run_path("server/native/source.py")["source_in"](Path())
    modules = [
        Extension(
            name,
            [source],
            define_macros=[("KWIRE_SOURCE", f'"{built_from}"')],
            extra_compile_args=["-O2", *checks],
            extra_link_args=checks,
        )
        for name, source in SOURCES.items()
    ]
    built: list[Extension] = cythonize(modules, build_dir="build/native", quiet=True)
    for each in built:
        each.optional = True  # a failed build is skipped; Cython does not keep its earlier messages
    return built


class Wheel(bdist_wheel):  # type: ignore[misc] # setuptools is not typed
    """A wheel that is for all platforms if the native modules could not be built."""

    def run(self) -> None:
        self.run_command("build_ext")
        command = self.get_finalized_command("build_ext")
        if not any(map(os.path.exists, command.get_outputs())):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(ext_modules=extensions(), cmdclass={"bdist_wheel": Wheel})
