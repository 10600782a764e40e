"""`./run bench [train] [arguments]`: runs a benchmark with all that it needs.

train   training speed against PyTorch and DeepSpeed (bench/train.py); --no-deepspeed leaves DeepSpeed out
"""

import hashlib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def deepspeed_python():
    """A Python with DeepSpeed on top of .venv's torch, in an environment of its own, set up once."""
    folder, wanted = ROOT / ".venv-bench", ROOT / "bench" / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "stamp"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return str(python)
    print("setting up DeepSpeed in .venv-bench", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = subprocess.run([sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True)
    own = subprocess.run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True)
    (pathlib.Path(own.stdout.strip()) / "torch_of_venv.pth").write_text(site.stdout)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(wanted)], check=True)
    stamp.write_text(digest)
    return str(python)


def main():
    arguments = sys.argv[1:] or ["train"]
    name, rest = arguments[0], arguments[1:]
    if name != "train":
        print(f"error: unknown benchmark {name}. There is: train.", file=sys.stderr)
        return 2
    command = [sys.executable, str(ROOT / "bench" / "train.py"), str(ROOT / "build" / "wirewise"), str(ROOT / "build" / "bench" / "no_communication")]
    if "--no-deepspeed" in rest:
        rest.remove("--no-deepspeed")
    else:
        command += ["--deepspeed", deepspeed_python()]
    return subprocess.run(command + rest).returncode


sys.exit(main())
