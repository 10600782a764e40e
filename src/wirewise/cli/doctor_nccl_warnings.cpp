// What NCCL's warnings mean.
#include "wirewise/cli/doctor_nccl.h"

namespace wirewise {
namespace {

struct Known {
  const char* first;   // both stand in the warning
  const char* second;
  const char* title;
  const char* remedy;
};

constexpr Known kKnown[] = {
    {"posix_fallocate", "No space left", "/dev/shm is full: NCCL found no room for a shared segment.",
     "Make /dev/shm larger: docker run --shm-size=8g or --ipc=host, in Kubernetes an emptyDir of medium Memory; else mount -o remount,size=8G /dev/shm. Remove what dead runs left there (nccl-*)."},
    {"shared memory segment", "", "/dev/shm is full or can't be written: NCCL got no shared segment.", "Make /dev/shm larger: docker run --shm-size=8g or --ipc=host."},
    {"Duplicate GPU detected", "", "Two ranks are on one GPU.", "Choose each rank's GPU by its local rank (LOCAL_RANK), and start no more ranks a host than GPUs."},
    {"ibv_reg_mr", "", "RDMA could not lock the memory that it needs.", "Raise the limit on locked memory: ulimit -l unlimited, docker run --ulimit memlock=-1."},
    {"ibv_create_qp", "", "RDMA could not make a queue pair.", "Raise the limit on locked memory (ulimit -l unlimited), and look for left processes that hold the adapter."},
    {"ibv_modify_qp", "", "RDMA could not connect a queue pair.", "On RoCE check NCCL_IB_GID_INDEX and that both ends are in one network; on InfiniBand the partition and the subnet manager."},
    {"Got completion", "error 12", "An RDMA transfer got no answer: the peer is dead or the path is broken.", "See the peer's own log first; then cables, switch counters, and on RoCE lossless settings. NCCL_IB_TIMEOUT only hides it."},
    {"Got completion", "", "An RDMA transfer failed.", "See the peer's own log first; then cables and switch counters."},
    {"Connection refused", "", "A rank could not reach another: nothing listens there.", "The peer has ended, or chose an interface that doesn't lead here: name it with NCCL_SOCKET_IFNAME, and look for firewalls."},
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
    if (warning.find(known.first) != std::string::npos && warning.find(known.second) != std::string::npos) return {known.title, known.remedy};
  }
  return {};
}

}  // namespace wirewise
