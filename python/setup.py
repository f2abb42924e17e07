"""Names the platform of a wheel that has Ream's library and command inside; one without is for any."""

import os

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HAS_NATIVE = os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "ream", "_native"))


class Native(Distribution):
    """What it has inside is for one kind of machine, though setuptools did not compile it."""

    def has_ext_modules(self):
        return HAS_NATIVE


class Wheel(bdist_wheel):
    """For every Python 3."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Native)
