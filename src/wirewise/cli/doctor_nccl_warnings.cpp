// What NCCL's warnings mean.
#include "wirewise/cli/doctor_nccl.h"

namespace wirewise {
namespace {

struct Known {
  const char* first;   // both stand in the warning
  const char* second;
  const char* title;
  const char* remedy;
  Severity severity = Severity::kError;
};

constexpr Known kKnown[] = {
    {"posix_fallocate", "No space left", "/dev/shm is full: NCCL found no room for a shared segment.",
     "Make /dev/shm larger: docker run --shm-size=8g or --ipc=host, in Kubernetes an emptyDir of medium Memory; else mount -o remount,size=8G /dev/shm. Remove what dead runs left there (nccl-*)."},
    {"shared memory segment", "", "/dev/shm is full or can't be written: NCCL got no shared segment.", "Make /dev/shm larger: docker run --shm-size=8g or --ipc=host."},
    {"Duplicate GPU detected", "", "Two ranks are on one GPU.", "Choose each rank's GPU by its local rank (LOCAL_RANK), and start no more ranks a host than GPUs."},
    {"Mismatched NCCL version", "", "Ranks run different versions of NCCL.", "One job wants one version on all hosts: the same container image or environment, and no LD_LIBRARY_PATH or LD_PRELOAD that brings another libnccl."},
    {"version mismatch", "", "Ranks run different versions of NCCL.", "One job wants one version on all hosts: the same container image or environment, and no LD_LIBRARY_PATH or LD_PRELOAD that brings another libnccl."},
    {"etwork", "not found", "NCCL finds no network of the name that it was given.", "NCCL_NET names one that isn't there (IB, Socket, or a plugin's name): unset it, or install the plugin and see that libnccl-net.so is found (LD_LIBRARY_PATH)."},
    {"ibv_reg_mr", "", "RDMA could not lock the memory that it needs.", "Raise the limit on locked memory: ulimit -l unlimited, docker run --ulimit memlock=-1."},
    {"ibv_create_qp", "", "RDMA could not make a queue pair.", "Raise the limit on locked memory (ulimit -l unlimited), and look for left processes that hold the adapter."},
    {"ibv_modify_qp", "", "RDMA could not connect a queue pair.", "On RoCE check NCCL_IB_GID_INDEX and that both ends are in one network; on InfiniBand the partition and the subnet manager."},
    {"Got completion", "status=12", "An RDMA transfer got no answer: the peer is dead or the path is broken.", "See the peer's own log first; then cables, switch counters, and on RoCE lossless settings. NCCL_IB_TIMEOUT only hides it."},
    {"Got completion", "RETRY_EXC", "An RDMA transfer got no answer: the peer is dead or the path is broken.", "See the peer's own log first; then cables, switch counters, and on RoCE lossless settings. NCCL_IB_TIMEOUT only hides it."},
    {"Got completion", "error 12", "An RDMA transfer got no answer: the peer is dead or the path is broken.", "See the peer's own log first; then cables, switch counters, and on RoCE lossless settings. NCCL_IB_TIMEOUT only hides it."},
    {"Got completion", "", "An RDMA transfer failed.", "See the peer's own log first; then cables and switch counters."},
    {"Connection refused", "", "A rank could not reach another: nothing listens there.", "The peer has ended, or chose an interface that doesn't lead here: name it with NCCL_SOCKET_IFNAME, and look for firewalls."},
    {"async event", "", "An RDMA adapter reports an event of its own.", "A port that goes down or an adapter that fails: see dmesg, ibstat and the switch's counters on that host."},
    {"ibv_open_device", "", "An RDMA adapter can't be opened.", "Pass /dev/infiniband into the container (--device=/dev/infiniband --cap-add=IPC_LOCK), and look at dmesg on the host."},
    {"onnection timed out", "", "A rank could not reach another in time.", "The peer has ended, a firewall drops the packets, or the interface doesn't lead there: name it with NCCL_SOCKET_IFNAME."},
    {"Too many open files", "", "The limit on open files is too low.", "Raise it: ulimit -n 1048576, LimitNOFILE for services."},
    {"Address already in use", "", "A port or an address is taken.", "Another job or a process of a dead run holds it; that of the RAS service (NCCL_RAS_ADDR) does no harm to the run."},
    {"Message truncated", "", "The ranks don't agree on what they call.", "Ranks took different branches, or run different versions or sizes: wirewise doctor flight shows where."},
    {"system not yet initialized", "", "The NVSwitches aren't set up: the fabric manager doesn't run.", "systemctl start nvidia-fabricmanager, of the driver's own version; on a virtual machine, of its host."},
    {"unsupported display driver", "", "CUDA and the GPU driver don't fit.", "Use a container or CUDA that fits the host's driver; remove a compat libcuda that is newer than it can be."},
    {"P2P is disabled between", "", "Peer-to-peer is off between GPUs that NVLink joins.", "A fault of the hardware or driver: see nvidia-smi topo -p2p r and nvidia-smi nvlink --status, and reset the GPUs or have them repaired."},
    {"Could not enable P2P", "", "Peer-to-peer between GPUs failed.", "Check ACS and the IOMMU (wirewise doctor); NCCL_P2P_DISABLE=1 is slow but works."},
    {"iommu=pt", "", "The IOMMU translates what the GPUs access.", "Boot with iommu=pt, or turn the IOMMU off in the BIOS.", Severity::kWarning},
    {"NUMA auto balancing", "", "The kernel moves memory between NUMA nodes.", "sysctl kernel.numa_balancing=0.", Severity::kWarning},
    {"no algorithm/protocol available", "", "No algorithm is left that NCCL may use.", "NCCL_ALGO or NCCL_PROTO leave none for this collective: unset them."},
    {"socket interface found", "", "NCCL finds no network interface.", "NCCL_SOCKET_IFNAME names one that isn't there: see wirewise doctor."},
    {"interface found", "", "NCCL finds no network interface.", "NCCL_SOCKET_IFNAME names one that isn't there: see wirewise doctor."},
    {"No route to host", "", "A rank could not reach another: there is no route.", "Name the interface that leads to the other hosts with NCCL_SOCKET_IFNAME (not docker0 or lo)."},
    {"Connection closed by remote peer", "", "A peer has gone away.", "Its own log says why: look for the rank that failed first."},
    {"Connection reset", "", "A peer has gone away.", "Its own log says why: look for the rank that failed first."},
    {"Timeout waiting", "", "A rank waited in vain for another.", "Look for the rank that has not arrived: wirewise doctor flight tells from flight records."},
    {"out of memory", "", "A GPU has no memory left for NCCL's buffers.", "Leave a few hundred MB free, or use fewer channels or smaller buffers (NCCL_BUFFSIZE)."},
    {"invalid device ordinal", "", "A rank asks for a GPU that isn't there.", "Check CUDA_VISIBLE_DEVICES against the number of local ranks."},
    {"driver version is insufficient", "", "The GPU driver is older than CUDA wants.", "Install a newer driver, or a build for an older CUDA."},
    {"No interface found", "", "NCCL finds no network interface.", "NCCL_SOCKET_IFNAME names one that isn't there: see wirewise doctor."},
    {"no interface", "", "NCCL finds no network interface.", "NCCL_SOCKET_IFNAME names one that isn't there: see wirewise doctor."},
    {"Cuda failure", "peer access", "Peer-to-peer between GPUs failed.", "Check ACS and the IOMMU (wirewise doctor); NCCL_P2P_DISABLE=1 is slow but works."},
    {"Cuda failure", "", "CUDA failed.", "The first failure of a process is the cause: look at what it did before, with CUDA_LAUNCH_BLOCKING=1."},
    {"Mismatched", "", "The ranks don't agree on what they call.", "Ranks took different branches: wirewise doctor flight shows where."},
};

}  // namespace

NcclMeaning meaning_of(const std::string& warning) {
  for (const Known& known : kKnown) {
    if (warning.find(known.first) != std::string::npos && warning.find(known.second) != std::string::npos) return {known.title, known.remedy, known.severity};
  }
  return {};
}

}  // namespace wirewise
