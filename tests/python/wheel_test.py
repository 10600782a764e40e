"""What pip installs: the package and nothing else, which needs torch and no other library, wherever it is put."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv

import pytest

SOURCE = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("WIREWISE_BUILD_DIR", SOURCE / "build"))
FULL = os.environ.get("WIREWISE_FULL") == "1"
CUDA = "libwirewise_cuda.so"  # where the torch of the build has CUDA
# The system's C and C++ runtime, its OpenSSL, and torch's libraries.
ALLOWED = re.compile(r"lib(torch\w*|c10|stdc\+\+|m|gcc_s|c|crypto|dl|rt|pthread|atomic)\.so[.\d]*|ld-linux-[\w-]+\.so[.\d]*")


def _dynamic(module):
    text = subprocess.run(["readelf", "--dynamic", str(module)], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
    return needed, [part for path in paths for part in path.split(":") if part]


# What torch's CUDA parts need as well.
ALLOWED_CUDA = re.compile(r"lib(torch_cuda|c10_cuda|cudart|nccl)\.so[.\d]*")


def _exported(module):
    symbols = subprocess.run(["nm", "--dynamic", "--defined-only", str(module)], check=True, capture_output=True, text=True).stdout.split("\n")
    return [line.split()[-1] for line in symbols if line]


def _check_module(module):
    needed, paths = _dynamic(module)
    assert not [name for name in needed if not ALLOWED.fullmatch(name)]
    assert paths == ["$ORIGIN/../torch/lib"]
    assert _exported(module) == ["PyInit__C"]


def _check_cuda(library):
    """Beside the module, with its libraries found beside the package: loading it needs no device."""
    import torch

    needed, paths = _dynamic(library)
    assert not [name for name in needed if not ALLOWED.fullmatch(name) and not ALLOWED_CUDA.fullmatch(name)]
    assert paths[0] == "$ORIGIN/../torch/lib" and all(path.startswith("$ORIGIN/../") for path in paths)
    packages = pathlib.Path(torch.__file__).parents[1]
    for name in needed:
        if ALLOWED_CUDA.fullmatch(name):
            assert [path for path in paths if (packages / path.removeprefix("$ORIGIN/../") / name).exists()], f"{name} is in none of {paths}"
    assert _exported(library) == ["wirewise_cuda_library"]


# A barrier of device 0 opens it as the first tensor there would; and the group goes on.
DEVICE = """
import torch, torch.distributed as d, wirewise
d.init_process_group('wirewise', store=d.HashStore(), rank=0, world_size=1)
d.barrier()
if not torch.cuda.is_available():
    try:
        d.barrier(device_ids=[0])
    except wirewise.BadInputError as error:
        print(error)
t = torch.ones(3)
d.all_reduce(t)
print(d.Backend.backend_capability['wirewise'], sorted(str(x) for x in d.group.WORLD._device_types), t.tolist())
d.destroy_process_group()
"""


def _check_devices(python, variables, folder, has_library):
    import torch

    said = subprocess.run([python, "-c", DEVICE], env=variables, check=True, capture_output=True, text=True, cwd=folder).stdout.splitlines()
    assert said[-1] == "['cpu', 'cuda'] ['cpu', 'cuda'] [1.0, 1.0, 1.0]"
    if not torch.cuda.is_available():
        assert "can't use cuda:0" in said[0] and "cpu:wirewise,cuda:nccl" in said[0]
        assert "is missing at" in said[0] if not has_library else "is missing at" not in said[0] and "can't be loaded" not in said[0], said[0]


def test_an_installed_module_needs_torch_alone(tmp_path):
    subprocess.run(["cmake", "--install", str(BUILD), "--component", "python", "--prefix", str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    (module,) = (tmp_path / "wirewise").glob("_C*.so")
    _check_module(module)
    for file in (SOURCE / "python" / "wirewise").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path / "wirewise")
    program = "import wirewise, torch.distributed as d; print(wirewise.__file__, d.Backend.backend_capability['wirewise'])"
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    library = tmp_path / "wirewise" / CUDA
    assert library.exists() == (BUILD / CUDA).exists()
    if library.exists():
        _check_cuda(library)
    _check_devices(sys.executable, variables, tmp_path, library.exists())
    said = subprocess.run([sys.executable, "-c", program], env=variables, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.split() == [str(tmp_path / "wirewise" / "__init__.py"), "['cpu',", "'cuda']"]


@pytest.mark.skipif(not FULL, reason="compiles the package; set WIREWISE_FULL=1")
def test_pip_installs_into_a_fresh_environment(tmp_path):
    pytest.importorskip("scikit_build_core")
    variables = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables.pop("PYTHONPATH")
    wheels = tmp_path / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-Cbuild-dir=" + str(BUILD / "wheel"),
                    "-w", str(wheels), str(SOURCE)], env=variables, check=True)
    (wheel,) = wheels.iterdir()
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    python = str(fresh / "bin" / "python")
    here = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True).stdout.strip()
    # torch is too large to install again: it is found where this environment has it.
    import torch

    (pathlib.Path(here) / "torch_of_another.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]) + "\n")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], env=variables, check=True)
    files = sorted(str(path.relative_to(here)) for path in pathlib.Path(here, "wirewise").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    module = next(name for name in files if name.startswith("wirewise/_C.") and name.endswith(".so"))
    expected = {f"wirewise/{file.name}" for file in (SOURCE / "python" / "wirewise").iterdir() if file.is_file()}
    has_library = f"wirewise/{CUDA}" in files
    assert has_library == (BUILD / CUDA).exists()
    assert set(files) == expected | {module} | ({f"wirewise/{CUDA}"} if has_library else set())
    _check_module(pathlib.Path(here) / module)
    if has_library:
        _check_cuda(pathlib.Path(here) / "wirewise" / CUDA)
    _check_devices(python, variables, tmp_path, has_library)
    program = ("import os, torch, torch.distributed as d, wirewise; d.init_process_group('wirewise', store=d.HashStore(), rank=0, world_size=1);"
               "t = torch.ones(3); d.all_reduce(t); d.destroy_process_group(); print(wirewise.__version__, t.tolist())")
    said = subprocess.run([python, "-c", program], env=variables, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.endswith("[1.0, 1.0, 1.0]\n")
