"""`./run bench [NAME] [arguments]`: runs a benchmark with all that it needs.

train         training speed against PyTorch and DeepSpeed (bench/train.py); --no-deepspeed leaves DeepSpeed out
hosts-train   training over two pretended hosts with a link of 1 Gbit/s: predicted against measured step time (bench/hosts_train.py); needs root
collectives   collectives on one host against Gloo, Open MPI, MPICH and Intel MPI (bench/collectives.py); --quick is a first look
torch         what the wirewise backend takes off PyTorch's own DDP and FSDP2 (bench/torch_backends.py)
hosts         collectives between two and four hosts against Gloo, and the bytes that cross (bench/hosts.py): network namespaces, so it needs root
placement     ranks placed by measured wiring against other orders, on four pretended hosts in two racks (bench/placement.py); needs root
"""

import hashlib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


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


def train(rest):
    command = ["train.py", str(BUILD / "wirewise"), str(BUILD / "bench" / "no_communication")]
    if "--no-deepspeed" in rest:
        rest.remove("--no-deepspeed")
    else:
        command += ["--deepspeed", deepspeed_python()]
    return command + rest


def collectives(rest):
    return ["collectives.py", str(BUILD / "wirewise"), str(BUILD / "bench" / "wirewise_collectives"), *rest]


def torch_backends(rest):
    return ["torch_backends.py", str(BUILD / "python"), *rest]


def hosts(rest):
    return ["hosts.py", str(BUILD / "bench" / "wirewise_collectives"), *rest]


def placement(rest):
    return ["placement.py", str(BUILD / "wirewise"), *rest]


def hosts_train(rest):
    return ["hosts_train.py", str(BUILD / "wirewise"), *rest]


# Name -> (CMake targets that it runs, its command below bench/).
BENCHES = {"train": (["no_communication"], train), "hosts-train": (["wirewise"], hosts_train), "placement": (["wirewise"], placement),
           "collectives": (["wirewise_collectives"], collectives), "torch": (["wirewise_python"], torch_backends),
           "hosts": (["wirewise_collectives"], hosts)}


def main():
    arguments = sys.argv[1:] or ["train"]
    name, rest = arguments[0], arguments[1:]
    if name not in BENCHES:
        print(f"error: unknown benchmark {name}. There are: {', '.join(BENCHES)}.", file=sys.stderr)
        return 2
    targets, command = BENCHES[name]
    subprocess.run(["cmake", "--build", str(BUILD), "--target", *targets], check=True, stdout=sys.stderr)
    script, *words = command(rest)
    return subprocess.run([sys.executable, str(ROOT / "bench" / script), *words]).returncode


sys.exit(main())
