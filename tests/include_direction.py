#!/usr/bin/env python3
"""Walks the includes of src/wirewise and fails on an arrow the wrong way: a layer may use itself and the layers before it; comm and model
don't know each other; libtorch is for torch/, for train/loop* and cli/torch_*, and for cuda/, a
library of its own that no layer includes.

usage: include_direction.py SOURCE_FOLDER | --self-test
"""
import pathlib
import re
import sys
import tempfile

LAYERS = ["base", "wiring", "comm", "model", "strategy", "schedule", "sim", "plan", "torch", "train", "cli", "cuda"]
STRANGERS = {("comm", "model"), ("model", "comm")}
OWN = re.compile(r'^\s*#\s*include\s*["<]wirewise/([a-z_]+)/([^">]+)[">]', re.M)
LIBTORCH = re.compile(r'^\s*#\s*include\s*[<"]((?:torch|ATen|c10|caffe2|pybind11)/[^">]+)[>"]', re.M)


def uses_libtorch(layer, name):
    """Whether a file belongs to the part that is built with libtorch only."""
    return layer in ("torch", "cuda") or (layer == "train" and name.startswith("loop")) or (layer == "cli" and name.startswith("torch_"))


def faults_of(path, layer, text):
    faults = []
    for target, file in OWN.findall(text):
        if target not in LAYERS:
            faults.append(f"includes the unknown layer {target}/")
        elif LAYERS.index(target) > LAYERS.index(layer):
            faults.append(f"includes {target}/{file}, a layer after {layer}/")
        elif (layer, target) in STRANGERS:
            faults.append(f"includes {target}/{file}: {layer}/ and {target}/ don't know each other")
        elif uses_libtorch(target, file) and not uses_libtorch(layer, path.name):
            faults.append(f"includes {target}/{file}, which needs libtorch")
    if not uses_libtorch(layer, path.name):
        faults += [f"includes libtorch's {header}" for header in LIBTORCH.findall(text)]
    return faults


def check(root):
    """All faults under root (src/wirewise), as lines."""
    lines = []
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        relative = path.relative_to(root)
        layer = relative.parts[0]
        if len(relative.parts) != 2 or layer not in LAYERS:
            lines.append(f"{relative}: lies in no layer")
            continue
        lines += [f"{relative}: {fault}" for fault in faults_of(path, layer, path.read_text(encoding="utf-8"))]
    return lines


def self_test():
    """Each wrong arrow is found, each right one passes."""
    cases = [
        ("base/a.h", '#include "wirewise/comm/store.h"', False),
        ("comm/a.h", '#include "wirewise/model/model.h"', False),
        ("model/a.h", '#include "wirewise/comm/store.h"', False),
        ("sim/a.cpp", "#include <torch/torch.h>", False),
        ("sim/a.cpp", "  #  include <ATen/ATen.h>", False),
        ("train/config.cpp", '#include "wirewise/torch/executor.h"', False),
        ("train/config.cpp", '#include "wirewise/train/loop.h"', False),
        ("plan/a.cpp", '#include "wirewise/train/config.h"', False),
        ("cli/env.cpp", "#include <torch/version.h>", False),
        ("comm/deep/a.h", "", False),
        ("other/a.h", "", False),
        ("comm/a.h", '#include "wirewise/base/error.h"', True),
        ("schedule/a.h", '#include "wirewise/model/model.h"', True),
        ("train/loop.cpp", '#include <ATen/ATen.h>\n#include "wirewise/torch/executor.h"', True),
        ("train/config.cpp", '#include "wirewise/train/config.h"', True),
        ("cli/torch_train.cpp", '#include "wirewise/train/loop.h"', True),
        ("cuda/a.cpp", '#include <ATen/Context.h>\n#include "wirewise/torch/dtype_torch.h"', True),
        ("cli/torch_train.cpp", '#include "wirewise/cuda/cuda_device.h"', False),
        ("sim/a.cpp", "// #include <torch/torch.h>", True),
    ]
    for name, text, right in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            found = check(pathlib.Path(folder))
            if bool(found) == right:
                return f"self-test: {name} with {text!r}: {found or 'no fault found'}"
    return None


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    root = pathlib.Path(sys.argv[1]) / "src" / "wirewise"
    faults = check(root)
    if not any(root.rglob("*.h")):
        sys.exit(f"no sources under {root}")
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
