// Buffers that are not shared, between processes: read and written in their owners' memory, or staged where a rank may not do that. Both give
// the reference's bits, also where ranks differ in which of their buffers are shared.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/numbers.h"
#include "comm/ranks.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

/// From here on this process may not read another's memory.
void deny_reading() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

struct Block {
  Block(Communicator& communicator, std::size_t bytes, bool shared) : comm(communicator), own(shared ? 0 : bytes + 1) {
    data = shared ? static_cast<std::byte*>(comm.allocate_shared(bytes + 1)) : own.data();
    if (shared) kept = data;
    data += 1;  // nothing may assume alignment
  }
  ~Block() {
    if (kept != nullptr) comm.free_shared(kept);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Communicator& comm;
  std::vector<std::byte> own;
  std::byte* kept = nullptr;
  std::byte* data = nullptr;
};

void expect_reference(Communicator& comm, DType dtype, std::size_t count, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  const std::size_t element = size_of(dtype);
  const auto sum = [&](std::size_t i) {
    std::vector<double> values;
    for (int r = 0; r < comm.size(); ++r) values.push_back(input_number(dtype, seed, r, i));
    return reduced_number(dtype, Reduction::kSum, values);
  };
  for (unsigned layout = 0; layout < 6; ++layout) {
    // 0: all private. 1: all shared. Then by rank, and apart for inputs and outputs.
    const bool in_shared = layout == 1 || (layout >= 2 && (me + layout) % 2 == 0);
    const bool out_shared = layout == 1 || (layout >= 2 && (me / 2 + layout / 2) % 2 == 0);
    const bool in_place = layout % 3 == 0;
    const Block in(comm, count * n * element, in_shared);
    const Block out(comm, count * n * std::max<std::size_t>(element, 4), out_shared);
    const auto fill = [&] {
      for (std::size_t i = 0; i < count * n; ++i) write_number(dtype, in.data, i, input_number(dtype, seed, comm.rank(), i));
    };
    const std::size_t step = 1 + count / 777;
    const auto check = [&](const std::byte* got, DType type, std::size_t first, double plus, const char* what) {
      for (std::size_t i = 0; i < count; i += step) {
        const double want = type == dtype ? round_to(dtype, sum(first + i)) : static_cast<double>(static_cast<float>(sum(first + i) + plus));
        ASSERT_EQ(read_number(type, got, i), want) << what << " of " << name_of(dtype) << ", layout " << layout << ", element " << i << " of " << count;
      }
    };
    fill();
    std::byte* const whole = in_place ? in.data : out.data;
    comm.all_reduce({in.data, dtype}, {whole, dtype}, count).wait();
    check(whole, dtype, 0, 0, "all_reduce");
    fill();
    std::byte* const slice = in_place ? in.data + me * count * element : out.data;
    comm.reduce_scatter({in.data, dtype}, {slice, dtype}, count).wait();
    check(slice, dtype, me * count, 0, "reduce_scatter");
    if (dtype == DType::kBFloat16) {
      fill();
      CallOptions options;
      options.accumulate = true;
      for (std::size_t i = 0; i < count; ++i) write_number(DType::kFloat32, out.data, i, 0.375);
      comm.all_reduce({in.data, dtype}, {out.data, DType::kFloat32}, count, Reduction::kSum, options).wait();
      check(out.data, DType::kFloat32, 0, 0.375, "accumulating all_reduce");
    }
    fill();
    comm.all_gather({in.data, dtype}, {out.data, dtype}, count).wait();
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; i += step) {
        ASSERT_EQ(read_number(dtype, out.data, r * count + i), input_number(dtype, seed, static_cast<int>(r), i)) << "all_gather";
      }
    }
    const std::vector<std::size_t> counts(n, count);
    comm.all_to_all({in.data, dtype}, counts, {out.data, dtype}, counts).wait();
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; i += step) {
        ASSERT_EQ(read_number(dtype, out.data, r * count + i), input_number(dtype, seed, static_cast<int>(r), me * count + i)) << "all_to_all";
      }
    }
    const int root = comm.size() - 1;
    comm.broadcast({in.data, dtype}, count, root).wait();
    for (std::size_t i = 0; i < count; i += step) ASSERT_EQ(read_number(dtype, in.data, i), input_number(dtype, seed, root, i)) << "broadcast";
  }
}

enum class Way { kDirect, kStaged, kOneIsDenied };

class PrivateBuffers : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, PrivateBuffers, ::testing::Values(Way::kDirect, Way::kStaged, Way::kOneIsDenied));

TEST_P(PrivateBuffers, GiveTheReferencesBits) {
  for (const int ranks : {2, 3}) {
    const TemporaryFolder folder;
    expect_all_ok(run_ranks(ranks, [&](int rank) {
      if (GetParam() == Way::kStaged) ::setenv("WIREWISE_CMA", "0", 1);
      if (GetParam() == Way::kOneIsDenied && rank == 1) deny_reading();
      const auto comm = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, ranks);
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{4097}, std::size_t{70'001}, std::size_t{400'003}}) {
          expect_reference(*comm, dtype, count, count + 3);
        }
      }
      comm->barrier().wait();
      return std::string();
    }));
  }
}

}  // namespace
}  // namespace wirewise
