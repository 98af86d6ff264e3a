"""Optional packages, and what to install for each."""

import importlib.util

EXTRAS = {
    "pyg": ("torch_geometric",),
    "cpu": ("numba",),
    "gpu": ("triton",),
    "progress": ("rich",),
    "figures": ("matplotlib",),
    "distributed": ("pymetis",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "estimators": ("sklearn",),
    "lightning": ("lightning",),
}
EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}
OF_THE_LAB = {
    "jinja2": "graphact-lab",
    "pandas": "graphact-lab",
    "pyarrow": "'graphact-lab[parquet]'",
}
"""Packages that graphact-lab brings along, and with what it is asked for."""


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def install_command(*packages: str) -> str:
    """Return the command that installs some packages."""
    extras = dict.fromkeys(EXTRA_OF[package] for package in packages if package not in OF_THE_LAB)
    words = list(dict.fromkeys(OF_THE_LAB[package] for package in packages if package in OF_THE_LAB))
    words += [f"'graphact[{','.join(extras)}]'"] if extras else []
    return f"pip install {' '.join(words)}"


def require(what: str, *packages: str) -> None:
    """Raise before work starts if it could not be finished: ``what`` is in words, with its verb ("reports need").

    Raises:
        ModuleNotFoundError: a package is missing; the message, one line, says what to install.
    """
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        message = f"{what} the {noun} {', '.join(missing)}: {install_command(*missing)}"
        raise ModuleNotFoundError(message, name=missing[0])
