/* MPI's collectives, timed as all contestants are: mpi_collectives BUDGET CASE…, a case being OPERATION:BYTES. See README.md. */
#include <limits.h>
#include <mpi.h>

#include "cases.h"

typedef struct {
  int op;
  int count; /* elements of a part */
  float* in;
  float* out;
} Call;

static void call(const Call* c) {
  switch (c->op) {
    case kAllReduce: MPI_Allreduce(MPI_IN_PLACE, c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case kAllGather: MPI_Allgather(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD); break;
    case kReduceScatter: MPI_Reduce_scatter_block(c->in, c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case kBroadcast: MPI_Bcast(c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case kAllToAll: MPI_Alltoall(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD); break;
    default: break;
  }
}

/* The slowest rank's mean of `calls` calls. */
static double timed(const Call* c, int calls) {
  double begin = 0, own = 0, slowest = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  begin = now_seconds();
  for (int i = 0; i < calls; ++i) call(c);
  own = (now_seconds() - begin) / calls;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

int main(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double budget = argc > 1 ? atof(argv[1]) : 0;
  for (int i = 2; i < argc; ++i) {
    size_t bytes = 0;
    Call c;
    c.op = read_case(argv[i], &bytes);
    const size_t count = c.op < 0 ? 0 : part_of(c.op, bytes, ranks);
    if (c.op < 0 || budget <= 0 || count > INT_MAX) {
      fprintf(stderr, "mpi_collectives: can't run %s\n", argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    c.count = (int)count;
    const size_t whole = (c.op == kAllReduce || c.op == kBroadcast ? 1 : (size_t)ranks) * count * sizeof(float);
    void *in = NULL, *out = NULL;
    MPI_Alloc_mem((MPI_Aint)whole, MPI_INFO_NULL, &in);
    MPI_Alloc_mem((MPI_Aint)whole, MPI_INFO_NULL, &out);
    c.in = (float*)in;
    c.out = (float*)out;
    for (size_t k = 0; k < whole / sizeof(float); ++k) c.in[k] = c.out[k] = 1e-9f;
    for (int k = 0; k < warmup_calls(bytes); ++k) call(&c);
    const double seconds = timed(&c, timed_calls(timed(&c, guess_calls(bytes)), budget));
    if (rank == 0) {
      printf("%s %zu %.9g\n", kNames[c.op], bytes, seconds);
      fflush(stdout);
    }
    MPI_Free_mem(in);
    MPI_Free_mem(out);
  }
  MPI_Finalize();
  return 0;
}
